"""The errors a person sees: one message that says what, where and what to do, and the exit code that goes with it."""

from __future__ import annotations


class FastRLError(Exception):
    """A failure while running. Every subclass differs only by its exit code."""

    exit_code = 1


class UsageError(FastRLError):
    """A wrong option, configuration field or combination of them."""

    exit_code = 2


class MissingError(FastRLError):
    """A package or a piece of hardware that the run needs is not there."""

    exit_code = 3


class DataError(FastRLError):
    """A data set or model that cannot be read or used."""

    exit_code = 4


class DivergedError(FastRLError):
    """Training produced non-finite numbers, or hung."""

    exit_code = 5


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def first_sentence(error: BaseException) -> str:
    """`first_line`, ended by a full stop."""
    line = first_line(error)
    return f"{line.rstrip('.')}."
