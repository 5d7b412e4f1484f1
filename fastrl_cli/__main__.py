"""`python -m fastrl_cli`, which `accelerate launch -m fastrl_cli` needs."""

from __future__ import annotations

from fastrl_cli.cli import main

main()
