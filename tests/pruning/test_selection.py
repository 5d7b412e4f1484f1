from __future__ import annotations

import subprocess
import sys
from typing import Literal

import numpy as np
import pytest

from fastrl_cli.config.base import Section
from fastrl_cli.config.pruning import MDAPConfig, NoPruningConfig
from fastrl_cli.errors import DataError, UsageError
from fastrl_cli.pruning import Reason, select
from tests.pruning.strategies import make_group


def test_none_keeps_everything() -> None:
    batch = [make_group([[1], [1]], [1, 1]), make_group([[1]] * 3, [0, 1, 1], question="toy:1")]
    selection = select(batch, NoPruningConfig(), divisor=2)
    assert [indices.tolist() for indices in selection.kept] == [[0, 1], [0, 1, 2]]
    assert selection.reasons == [[Reason.ALL] * 2, [Reason.ALL] * 3]
    assert selection.unaligned


def test_an_empty_batch_selects_nothing() -> None:
    selection = select([], MDAPConfig(), divisor=4)
    assert selection.kept == []
    assert not selection.unaligned
    assert selection.stats["kept_fraction"] == 0


def test_stats_count_rollouts_tokens_and_reasons() -> None:
    batch = [
        make_group([[1, 2], [1, 2], [7, 8, 9], [1, 2]], [1, 1, 1, 0]),
        make_group([[3], [3]], [1, 1], question="toy:1"),
    ]
    selection = select(batch, MDAPConfig(), divisor=5)
    assert selection.counts == [4, 1] or selection.counts == [3, 2]
    stats = selection.stats
    assert (stats["generated"], stats["kept"], stats["kept_fraction"]) == (6, 5, 5 / 6)
    assert stats["tokens_generated"] == 11
    assert stats["tokens_kept"] == (10 if selection.counts[0] == 4 else 9)
    assert stats["kept_token_fraction"] == stats["tokens_kept"] / 11
    assert stats["degenerate_groups"] == 1
    assert stats["kept_per_question_mean"] == 2.5
    assert stats["kept_per_question_max"] == max(selection.counts)
    assert [stats[f"reason_{name}"] for name in ("seed", "dissimilar", "fill", "pruned", "dropped", "all")] == [
        3,
        1,
        1,
        1,
        0,
        0,
    ]


def test_a_config_without_a_selector_names_those_there_are() -> None:
    class StrangeConfig(Section):
        type: Literal["strange"] = "strange"

    with pytest.raises(UsageError, match=r"StrangeConfig.*advantage_only, mdap, none"):
        select([], StrangeConfig())  # type: ignore[arg-type]


def test_a_group_names_the_rollout_without_a_finite_reward() -> None:
    with pytest.raises(DataError, match=r"'toy:7', draw 2: the reward of rollout 1 is nan"):
        make_group([[1], [2]], [0, np.nan], question="toy:7", number=2, advantages=[0, 0])


def test_a_group_with_missing_entries_is_refused() -> None:
    with pytest.raises(DataError, match="'token_ids': 1, 'rewards': 2"):
        make_group([[1]], [0, 1])


def test_rounding_noise_does_not_hide_a_degenerate_group() -> None:
    assert make_group([[1], [2]], [1, 1], advantages=[2e-10, -2e-10]).is_degenerate
    assert not make_group([[1], [2]], [1, 0]).is_degenerate


def test_pruning_and_sampling_need_numpy_alone() -> None:
    code = (
        "import sys, fastrl_cli.pruning, fastrl_cli.sampling;"
        "print([m for m in ('torch', 'transformers', 'vllm', 'datasets', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
