from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastrl_cli.rewards import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """One worker with a long limit: a busy machine must not turn verdicts into timeouts."""
    grader = Grader(workers=1, timeout_seconds=60.0)
    yield grader
    grader.close()
