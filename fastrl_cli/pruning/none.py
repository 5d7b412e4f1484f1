"""No pruning: every rollout is kept (GRPO, DAPO and GSPO as they are)."""

from __future__ import annotations

from collections.abc import Sequence

from fastrl_cli.config.pruning import NoPruningConfig
from fastrl_cli.pruning.groups import Group
from fastrl_cli.pruning.selection import Reason, Reasons, register


@register(NoPruningConfig)
def keep_all(groups: Sequence[Group], config: NoPruningConfig, step: int) -> Reasons:
    """Every rollout of every group."""
    return [[Reason.ALL] * len(group) for group in groups]
