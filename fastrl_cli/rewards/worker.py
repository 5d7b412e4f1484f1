"""The grading process: reads tasks from a pipe and answers them, one at a time.

It is started as a fresh interpreter, so it inherits neither threads, locks, devices nor the caller's main module. The
parent watches the clock; the limits here are for the case that the parent is gone."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

MEMORY_BYTES = 2 * 1024**3
ORPHAN_SECONDS = 10.0
"""How often an idle worker looks whether its parent still lives."""


def serve(connection: Connection, limit_seconds: float) -> None:
    """Answer `(operation, arguments)` with `(result, error)` until the other end closes."""
    try:
        from fastrl_cli.rewards import symbolic
    except ImportError as error:
        connection.send(("missing", str(error)))
        return
    symbolic.warm_up()
    connection.send(("ready", None))
    operations: dict[str, Callable[..., bool]] = {"equal": symbolic.equal, "parses": symbolic.parses}
    parent = os.getppid()
    while True:
        while not connection.poll(ORPHAN_SECONDS):
            if os.getppid() != parent:
                return
        operation, arguments = connection.recv()
        # The kernel ends a computation that outlives its parent, even inside one long big-integer operation.
        signal.setitimer(signal.ITIMER_REAL, limit_seconds + ORPHAN_SECONDS)
        try:
            answer: tuple[bool, str | None] = (operations[operation](*arguments), None)
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}"[:200])
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(answer)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])), float(sys.argv[2]))


if __name__ == "__main__":
    main()
