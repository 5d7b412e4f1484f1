"""Worker processes with a hard wall-clock limit for each answer. One that hangs or dies is replaced, and the caller
gets a verdict in any case."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from fastrl_cli.errors import FastRLError, MissingError

START_SECONDS = 120.0
"""A worker that has not loaded sympy by then never will."""
TASKS_PER_WORKER = 8
"""A further worker is started for every so many tasks at once: loading sympy costs more than a few answers."""
MAX_STARTS = 3
"""Workers in a row that may end before they are ready, until the pool gives up."""
MAX_ATTEMPTS = 2
"""An answer whose worker was killed from outside is tried once more."""

Task = tuple[str, tuple[str, ...]]
"""(operation of `symbolic`, its arguments)"""


@dataclass(frozen=True)
class Verdict:
    """The answer to a task; `equal` is False where there is an `error`."""

    equal: bool
    error: str | None = None
    """`timeout`, `crash`, or the exception's text."""


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    deadline: float
    ready: bool = False
    task: int | None = None


def _start(limit_seconds: float) -> _Worker:
    ours, theirs = Pipe()
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), OMP_NUM_THREADS="1")
    # A session of its own keeps the terminal's Ctrl-C away from it.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fastrl_cli.rewards.worker", str(theirs.fileno()), str(limit_seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
        env=environment,
    )
    theirs.close()
    return _Worker(process, ours, time.monotonic() + START_SECONDS)


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.kill()
    worker.process.wait()


def _stop_all(workers: list[_Worker]) -> None:
    while workers:
        _stop(workers.pop())


class GradingPool:
    """Up to `workers` processes, started when there is something for them to do. Calls from several threads wait for
    each other. `timeout_seconds` bounds each answer."""

    def __init__(self, workers: int | None = None, timeout_seconds: float = 5.0) -> None:
        self.size = workers or min(os.cpu_count() or 1, 8)
        self.timeout_seconds = timeout_seconds
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._failed_starts = 0
        self._finalizer = weakref.finalize(self, _stop_all, self._workers)
        _POOLS.add(self)

    @property
    def process_ids(self) -> list[int]:
        """Of the workers that run now."""
        return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        """End the workers. A later call of `run` starts new ones."""
        with self._lock:
            _stop_all(self._workers)

    def run(self, tasks: Sequence[Task]) -> list[Verdict]:
        """The verdicts of the tasks, in their order. Raises `MissingError` where math-verify is not installed."""
        if not tasks:
            return []
        with self._lock:
            try:
                return self._run(tasks)
            except BaseException:
                _stop_all(self._workers)
                raise

    def forget(self) -> None:
        """In a forked child: the workers belong to the parent."""
        self._lock = threading.Lock()
        self._workers.clear()

    def _run(self, tasks: Sequence[Task]) -> list[Verdict]:
        verdicts: list[Verdict | None] = [None] * len(tasks)
        attempts = [0] * len(tasks)
        queue = deque(range(len(tasks)))
        while any(verdict is None for verdict in verdicts):
            self._grow(len(queue))
            for worker in self._workers:
                if worker.ready and worker.task is None and queue:
                    self._send(worker, queue.popleft(), tasks)
            for worker in self._wait():
                self._receive(worker, verdicts, attempts, queue)
        return [verdict for verdict in verdicts if verdict is not None]

    def _grow(self, waiting: int) -> None:
        wanted = min(self.size, 1 + (waiting - 1) // TASKS_PER_WORKER)
        while len(self._workers) < wanted:
            self._workers.append(_start(self.timeout_seconds))

    def _send(self, worker: _Worker, task: int, tasks: Sequence[Task]) -> None:
        worker.task = task
        worker.deadline = time.monotonic() + self.timeout_seconds
        # A dead worker's closed pipe is seen by `_wait`.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(tasks[task])

    def _wait(self) -> list[_Worker]:
        """Workers with news: an answer, a closed pipe, or a passed deadline."""
        busy = [worker for worker in self._workers if worker.task is not None or not worker.ready]
        patience = min(worker.deadline for worker in busy) - time.monotonic()
        live = set(wait([worker.connection for worker in busy], max(patience, 0.0)))
        now = time.monotonic()
        return [worker for worker in busy if worker.connection in live or worker.deadline <= now]

    def _receive(self, worker: _Worker, verdicts: list[Verdict | None], attempts: list[int], queue: deque[int]) -> None:
        try:
            message = worker.connection.recv() if worker.connection.poll() else None
        except (EOFError, ConnectionResetError):
            message = ("dead", None)
        task = worker.task
        if message is None:
            self._discard(worker)
            if task is not None:
                verdicts[task] = Verdict(False, "timeout")
        elif message[0] == "dead":
            self._discard(worker)
            if task is not None:
                attempts[task] += 1
                if attempts[task] < MAX_ATTEMPTS:
                    queue.appendleft(task)
                else:
                    verdicts[task] = Verdict(False, "crash")
        elif message[0] == "missing":
            raise MissingError(f"Grading needs math-verify: {message[1]}. Install it: pip install math-verify")
        elif not worker.ready:
            worker.ready = True
            self._failed_starts = 0
        elif task is not None:
            worker.task = None
            verdicts[task] = Verdict(*message)

    def _discard(self, worker: _Worker) -> None:
        """Kill a worker and start another at once, so that it loads while the caller goes on."""
        self._workers.remove(worker)
        _stop(worker)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_STARTS:
                raise FastRLError(
                    f"{MAX_STARTS} grading processes in a row did not start ({sys.executable}, exit code "
                    f"{worker.process.returncode}). Is the machine out of memory?"
                )
        self._workers.append(_start(self.timeout_seconds))


_POOLS: weakref.WeakSet[GradingPool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_POOLS):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
