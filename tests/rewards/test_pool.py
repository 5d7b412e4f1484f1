from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from fastrl_cli.errors import FastRLError, MissingError
from fastrl_cli.rewards import pool as pool_module
from fastrl_cli.rewards.pool import GradingPool, Verdict

PLAIN = ("equal", ("x+x", "2x"))
PATIENT = 60.0
HANGING = ("equal", ("10000000!", "5"))


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[GradingPool]:
    pool = GradingPool(workers=1, timeout_seconds=PATIENT)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared_pool: GradingPool) -> GradingPool:
    """A pool with a worker that is ready."""
    shared_pool.timeout_seconds = PATIENT
    assert shared_pool.run([PLAIN]) == [Verdict(True)]
    return shared_pool


def test_workers_start_when_they_are_needed():
    pool = GradingPool(workers=1, timeout_seconds=PATIENT)
    assert pool.process_ids == []
    assert pool.run([]) == []
    assert pool.process_ids == []
    assert pool.run([PLAIN]) == [Verdict(True)]
    assert len(pool.process_ids) == 1
    pool.close()
    assert pool.process_ids == []


def test_verdicts_keep_the_order_of_the_tasks():
    pool = GradingPool(workers=2, timeout_seconds=60.0)
    tasks = [("equal", (f"x+{i}", f"{i % 5}+x")) for i in range(24)]
    assert [verdict.equal for verdict in pool.run(tasks)] == [i == i % 5 for i in range(24)]
    assert len(pool.process_ids) == 2
    pool.close()
    assert pool.process_ids == []


def test_a_hung_worker_is_killed_and_replaced(pool: GradingPool):
    before = pool.process_ids
    pool.timeout_seconds = 0.5
    assert pool.run([HANGING]) == [Verdict(False, "timeout")]
    pool.timeout_seconds = PATIENT
    assert pool.run([PLAIN]) == [Verdict(True)]
    assert pool.process_ids != before
    assert not alive(before[0])


def test_hostile_text_that_reaches_a_worker(pool: GradingPool):
    texts = ("{" * 100_000, "}" * 100_000, "(" * 3000 + ")" * 3000, "\ud800", "5\x00", "__import__('os')")
    pool.timeout_seconds = 3.0
    assert not any(verdict.equal for verdict in pool.run([("equal", (text, "5")) for text in texts]))
    pool.timeout_seconds = PATIENT
    assert pool.run([PLAIN]) == [Verdict(True)]


def test_an_idle_worker_killed_from_outside_is_replaced(pool: GradingPool):
    os.kill(pool.process_ids[0], signal.SIGKILL)
    assert pool.run([PLAIN, PLAIN]) == [Verdict(True), Verdict(True)]


def test_a_task_whose_workers_keep_dying_is_given_up(pool: GradingPool):
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.extend(pool.run([HANGING])))
    thread.start()
    killed: set[int] = set()
    while thread.is_alive():
        for worker in list(pool._workers):
            if worker.ready and worker.task is not None and worker.process.pid not in killed:
                killed.add(worker.process.pid)
                worker.process.kill()
        time.sleep(0.02)
    assert verdicts == [Verdict(False, "crash")]
    assert len(killed) == pool_module.MAX_ATTEMPTS
    assert pool.run([PLAIN]) == [Verdict(True)]


def test_workers_that_never_start_end_the_run_with_a_message(monkeypatch):
    monkeypatch.setattr(pool_module.sys, "executable", "/bin/false")
    with pytest.raises(FastRLError, match="did not start"):
        GradingPool(workers=1).run([PLAIN])


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('no math_verify here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingError, match="pip install math-verify"):
        GradingPool(workers=1).run([PLAIN])


# A shell that runs the tests in the background makes its children ignore SIGINT.
SCRIPT = """
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)
import sys, time
from fastrl_cli.rewards.pool import GradingPool
pool = GradingPool(workers=1, timeout_seconds=60.0)
print(pool.run([("equal", ("x+x", "2x"))])[0].equal, *pool.process_ids, flush=True)
{end}
"""


def start(end: str) -> tuple[subprocess.Popen[str], int]:
    """A script without a main guard: workers must not run it again."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT.format(end=end)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    equal, worker = process.stdout.readline().split()
    assert equal == "True"
    return process, int(worker)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    for _ in range(600):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")


@needs_proc
def test_workers_end_with_the_program():
    process, worker = start("")
    assert process.wait(60) == 0
    assert gone(worker)


@needs_proc
def test_workers_ignore_an_interrupt_and_end_with_the_program():
    process, worker = start("time.sleep(600)")
    os.kill(worker, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert gone(worker)


@needs_proc
def test_a_worker_survives_an_interrupt(pool: GradingPool):
    before = pool.process_ids
    os.kill(before[0], signal.SIGINT)
    assert pool.run([PLAIN]) == [Verdict(True)]
    assert pool.process_ids == before


@needs_proc
def test_workers_end_when_the_program_is_killed():
    process, worker = start("time.sleep(600)")
    process.kill()
    process.wait(60)
    assert gone(worker)
