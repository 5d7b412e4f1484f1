"""A hung phase ends the run with its stacks; a slow one does not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fastrl_cli.training.watchdog import Watchdog


def test_row_45_a_phase_over_its_limit_leaves_the_stacks_and_exit_code_5(tmp_path: Path, capfd):
    codes: list[int] = []
    bitten = threading.Event()

    def bite(code: int) -> None:
        codes.append(code)
        bitten.set()

    watchdog = Watchdog(20.0, 0.2, tmp_path, bite)
    watchdog.enter("generate")
    assert bitten.wait(20)
    watchdog.close()
    assert codes == [5]
    assert "test_watchdog" in (tmp_path / "stacks.txt").read_text()
    assert "`generate`" in capfd.readouterr().err


def test_the_limit_follows_the_median_of_the_phase():
    watchdog = Watchdog(20.0, 0.5, None, lambda code: None)
    assert watchdog.limit("update") == 0.5
    for seconds in (1.0, 2.0, 30.0):
        watchdog._durations["update"].append(seconds)
    assert watchdog.limit("update") == 40.0
    assert watchdog.limit("generate") == 0.5
    watchdog.close()


def test_between_phases_nothing_is_waited_for(tmp_path: Path):
    codes: list[int] = []
    watchdog = Watchdog(20.0, 0.1, tmp_path, codes.append)
    watchdog.enter("update")
    watchdog.enter(None)
    time.sleep(0.5)
    watchdog.close()
    assert codes == []
