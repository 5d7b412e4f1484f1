"""Around every command: stdout kept for the result, and every failure turned into one message and an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from fastrl_cli.errors import FastRLError, MissingError, UsageError, first_line
from fastrl_cli.reporting.jsonable import sanitize
from fastrl_cli.reporting.progress import Reporter, make_reporter
from fastrl_cli.reporting.wording import resume_command

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERRUPTED = 130
"""Exit code after an interrupt, as a shell gives it."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


class Result(Protocol):
    """What a command found."""

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        ...

    def render(self) -> RenderableType:
        """For a person."""
        ...


@dataclass(frozen=True)
class Outcome:
    """A result with the exit code that goes with it."""

    result: Result
    exit_code: int = 0


class Session:
    """One command at work. Holds its reporter, so that the terminal is given back whatever happens."""

    def __init__(self) -> None:
        self.reporter: Reporter | None = None

    def report(self, mode: str) -> Reporter:
        """Begin to tell what happens. Raises `UsageError` for an unknown mode."""
        self.reporter = make_reporter(mode)
        return self.reporter

    @property
    def run_dir(self) -> Path | None:
        return self.reporter.run_dir if self.reporter is not None else None

    def close(self) -> None:
        if self.reporter is not None:
            self.reporter.close()


def execute(command: Callable[[Session], Outcome], *, as_json: bool, debug: bool) -> int:
    """Run a command, print its result on stdout, and return the exit code. Of several processes only the first prints
    a result."""
    session = Session()
    open_missing_streams()
    stdout = reserve_stdout()
    try:
        outcome = command(session)
        session.close()
        if _rank() == 0:
            print_result(outcome.result, stdout, as_json=as_json)
        return outcome.exit_code
    except KeyboardInterrupt:
        session.close()
        _say(f"interrupted{_how_to_go_on(session.run_dir)}")
        return INTERRUPTED
    except Exception as error:
        session.close()
        return report_failure(error, session.run_dir, debug=debug)


def open_missing_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr a mute one. The next file it opens would else get
    its number, and what is meant for one would reach the other."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def reserve_stdout() -> TextIO:
    """The real stdout, for the result alone. Whatever else this process or its children write to stdout goes to stderr
    from here on, to the very end: libraries print there from Python, from C, and while they shut down."""
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(real, "w", encoding="utf-8")


def print_result(result: Result, stdout: TextIO, *, as_json: bool) -> None:
    """One JSON document, numbers that are not finite as null; or a table. A reader that went away, as `head` does, is
    no failure of the command."""
    with suppress(BrokenPipeError):
        _write_result(result, stdout, as_json=as_json)
        stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())  # so that closing it does not fail once more


def _write_result(result: Result, stdout: TextIO, *, as_json: bool) -> None:
    if as_json:
        stdout.write(json.dumps(sanitize(result.document()), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        from rich.console import Console

        console = Console(file=stdout, highlight=False, markup=False)
        with console.capture() as table:
            console.print(result.render())
        stdout.write(table.get())


def report_failure(error: Exception, run_dir: Path | None, *, debug: bool) -> int:
    """Say on stderr what went wrong and return the exit code. The traceback is shown with `debug` only; it is also left
    in the run directory, where there is one."""
    trace = "".join(traceback.format_exception(error))
    known = as_known(error)
    lines = [trace] if debug else []
    lines.append(f"error: {known}")
    if run_dir is not None and run_dir.is_dir():
        path = run_dir / ("error.txt" if _rank() == 0 else f"error-rank{_rank()}.txt")
        with suppress(OSError):
            path.write_text(trace, encoding="utf-8", errors="backslashreplace")
            lines.append(f"The traceback is in {path}.")
    _say("\n".join(lines))
    return known.exit_code


def as_known(error: Exception) -> FastRLError:
    """The error as one that says what to do."""
    if isinstance(error, FastRLError):
        return error
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return MissingError(
            f"no space left on the disk{_at(error)}. Make room, or write elsewhere with --run-dir (temporary files: "
            "TMPDIR, data caches: HF_HOME)."
        )
    if isinstance(error, OSError) and error.errno in _NO_PERMISSION:
        return MissingError(f"no permission{_at(error)}. Change its permissions, or write elsewhere with --run-dir.")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return UsageError(f"a name is too long for the file system{_at(error)}. Give a shorter one.")
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return MissingError(
            "out of memory. Lower model.tokens_per_micro_batch, batch.questions_per_step or data.max_pixels, set "
            f"model.gradient_checkpointing=true, or give the engine less. ({first_line(error)})"
        )
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("fastrl_cli"):
        return MissingError(f"the package `{error.name}` is not installed. Install fastrl anew with `make install`.")
    return FastRLError(
        f"{type(error).__name__}: {first_line(error)}\nThis was not foreseen. `--debug` shows where it happened."
    )


def _how_to_go_on(run_dir: Path | None) -> str:
    return "" if run_dir is None else f". To go on: {resume_command(run_dir)}"


def _at(error: OSError) -> str:
    return f": {error.filename}" if error.filename else ""


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
