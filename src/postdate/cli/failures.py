"""Errors to one line on stderr and an exit code: never a traceback for a user's mistake.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 storage unreachable; 130 interrupted (Ctrl-C), 141 the reader
of our output went away.
"""

import os
import sys
import traceback

from postdate.cli.render import plain
from postdate.errors import PostdateError

DONE, FAILED, WRONG_USAGE, UNREACHABLE, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141


def say_error(text: str) -> None:
    """`postdate: error: ...`, on one line, whatever the text holds."""
    sys.stderr.write(f"postdate: error: {plain(' '.join(text.split()))}\n")
    sys.stderr.flush()


def report(error: BaseException, *, verbose: bool) -> int:
    """Tell the user what went wrong; the exit code."""
    if isinstance(error, BaseExceptionGroup):
        error = _first(error)
    if isinstance(error, PostdateError):
        say_error(str(error))
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return reader_gone()
    if isinstance(error, OSError) and error.filename is not None:
        say_error(f"{error.filename}: {error.strerror}")
        return FAILED
    if verbose:
        traceback.print_exception(error)
    say_error(
        f"unexpected {type(error).__name__}: {error}"
        + ("" if verbose else "; run it again with --verbose and report what it prints")
    )
    return FAILED


def reader_gone() -> int:
    """Nobody reads our output any more: drop the rest quietly, what is buffered included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return READER_GONE


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell of several: one of ours before any other."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, PostdateError)), leaves[0])
