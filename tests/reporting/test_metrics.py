"""The table of metrics, and the files that hold them."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.errors import DataError
from fastrl_cli.reporting.jsonable import dump_line, flatten, nest, sanitize
from fastrl_cli.reporting.metrics import METRICS, PHASES, is_reproducible, lookup, validate
from fastrl_cli.reporting.metrics_file import MetricsFile, read_metrics

NAMES = [name for name in METRICS if not name.endswith("*")]


def line(step: int, **more: float) -> dict[str, float]:
    return {"step": step, "reward/mean": step / 10, **more}


def test_no_name_is_both_a_number_and_a_level() -> None:
    assert not [(a, b) for a in NAMES for b in NAMES if b.startswith(f"{a}/")]


def test_a_name_in_a_family_is_known_and_others_are_not() -> None:
    assert lookup("reward/overlong").name == "reward/*"
    assert lookup("kept/reason/fill").name == "kept/reason/*"
    assert lookup("reward/mean").unit == "reward"
    with pytest.raises(KeyError, match="rewards/mean"):
        validate(["step", "rewards/mean"])


def test_wall_time_and_memory_are_told_from_what_must_repeat() -> None:
    varying = {name for name in NAMES if not is_reproducible(name)}
    units = {METRICS[name].unit for name in varying}
    assert units == {"seconds", "tokens/s", "bytes"}
    assert {name for name in NAMES if METRICS[name].unit in units} == varying


def test_a_phase_has_its_seconds() -> None:
    assert {f"phase_seconds/{phase}" for phase in PHASES} <= set(NAMES)
    assert PHASES == ("generate", "reward", "advantage", "select", "old", "reference", "update", "sync", "other")


def test_a_line_of_the_file_is_nested_and_comes_back_flat(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append(line(1, **{"phase_seconds/generate": 0.5, "tokens/trained": 7}))
    written = json.loads(path.read_text())
    assert written["phase_seconds"] == {"generate": 0.5} and written["tokens"] == {"trained": 7}
    assert read_metrics(path) == [line(1, **{"phase_seconds/generate": 0.5, "tokens/trained": 7})]


def test_a_line_is_on_the_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(line(1))
    assert read_metrics(tmp_path / "metrics.jsonl") == [line(1)]
    file.close()


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append({"step": 1, "loss/policy": math.nan, "loss/kl": math.inf, "grad_norm": float(np.float32(2))})
    assert json.loads(path.read_text())["loss"] == {"policy": None, "kl": None}
    assert read_metrics(path) == [{"step": 1, "grad_norm": 2.0}]


def test_an_unknown_name_or_a_missing_step_is_refused(tmp_path: Path) -> None:
    with MetricsFile(tmp_path / "metrics.jsonl") as file:
        with pytest.raises(KeyError, match="lossy"):
            file.append({"step": 1, "lossy": 1.0})
        with pytest.raises(KeyError, match="step"):
            file.append({"reward/mean": 1.0})
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_a_resumed_file_is_cut_to_the_step_and_loses_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in (1, 2, 3):
            file.append(line(step))
    with path.open("a") as torn:
        torn.write('{"step": 4, "rew')
    assert [metrics["step"] for metrics in read_metrics(path)] == [1, 2, 3]
    with MetricsFile(path, resume_at=2) as file:
        file.append(line(3, epoch=0.5))
    assert read_metrics(path) == [line(1), line(2), line(3, epoch=0.5)]


def test_a_new_file_forgets_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    MetricsFile(path).close()
    assert path.read_text() == "" and list(tmp_path.iterdir()) == [path]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnot json\n{"step": 3}\n')
    with pytest.raises(DataError, match="line 2"):
        read_metrics(path)


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none.jsonl") == []


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=False, allow_infinity=False)))
def test_nesting_loses_nothing(metrics: dict[str, float]) -> None:
    assert flatten(nest(metrics)) == metrics
    assert flatten(json.loads(dump_line(nest(metrics)))) == metrics


def test_json_knows_every_sanitized_value() -> None:
    values = {"a": (np.float32(1.5), np.int64(2), math.nan), 3: {"b": [True, None, "é", -math.inf]}}
    assert sanitize(values) == {"a": [1.5, 2, None], "3": {"b": [True, None, "é", None]}}
    assert sanitize({"when": date(2026, 1, 2), "price": Decimal("1.5"), "raw": b"\x00"}) == {
        "when": "2026-01-02", "price": "1.5", "raw": "AA==",
    }  # fmt: skip
