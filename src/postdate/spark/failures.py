"""What goes wrong in a task comes back as a traceback inside a traceback; here it is one line again."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from postdate import errors
from postdate.errors import ConfigurationError, PostdateError, UsageError

#: The last line of a traceback that one of our errors ended.
_OURS = re.compile(r"^(?:\s*E\s+)?postdate\.errors\.(\w+): (.+)$", re.MULTILINE)
#: What the JVM says after "An error occurred while calling ...": each cause of the one before.
_JAVA = re.compile(r"^(?::|Caused by:) (?:[\w.$]+\.)?(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
_OF_PATHS = (
    "ParentNotDirectory",
    "UnsupportedFileSystem",
    "FileAlreadyExists",
    "FileNotFound",
    "AccessControl",
)
#: The last line of any other traceback.
_PYTHON = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)'")
_SHOWN_CHARACTERS = 300
#: The file that Spark was reading when it failed.
_FILE = re.compile(r"error while reading file (?:file:(?://(?=/))?)?(\S+?)\.?\s")
#: Way out, where Spark's own words tell none.
_HINTS = {
    "TIMESTAMP(NANOS": "write its instants in microseconds (pandas: to_parquet(..., coerce_timestamps='us'))",
    "UNABLE_TO_INFER_SCHEMA": "there is nothing of this format in it; name other files, or another --format",
    "MALFORMED_CSV_RECORD": "each line needs as many values as the header line; quote those with commas",
    "JsonParseException": "write one whole object on each line",
    "is not a Parquet file": "name other files, or give --format",
}


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Raise what Spark raises as an error of ours, where it began as one, or in one line of Spark's own.

    Raises:
        PostdateError: of the class that was raised in the task, where that is known.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise translated(str(error), analysis=isinstance(error, AnalysisException)) from error


def translated(text: str, *, analysis: bool = False) -> PostdateError:
    """The error that a text of Spark's tells.

    Args:
        text: of the exception.
        analysis: what was asked of Spark can't be, whatever the rows are.
    """
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        return _made(getattr(errors, name, PostdateError), message)
    missing = _NO_MODULE.search(text)
    if missing:
        return ConfigurationError(
            f"a Spark task can't import {missing[1]}; install postdate[spark] where executors run (on this "
            "machine PYSPARK_PYTHON names their Python)"
        )
    if "AnalysisException" in text or "PATH_NOT_FOUND" in text or "UNRESOLVED_COLUMN" in text:
        analysis = True
    if analysis and "Traceback" not in text:
        return UsageError(f"{_first_line(text)}{_hint(text)}")
    ended_by = _PYTHON.findall(text) if "Python worker" in text else []
    if ended_by:
        kind, words = ended_by[-1]
        return PostdateError(f"Spark: a task ended with {kind}: {_first_line(words)}")
    return _of_the_jvm(text)


def _of_the_jvm(text: str) -> PostdateError:
    causes = _JAVA.findall(text)
    if not causes:
        return PostdateError(f"Spark: {_first_line(text)}")
    kind, words = causes[-1]
    if kind == "ClassNotFoundException" and "azurebfs" in words:
        return ConfigurationError(
            "Spark has no package for abfss:// paths; start it with --packages "
            "org.apache.hadoop:hadoop-azure:<version of its Hadoop>, or give a folder"
        )
    if kind.removesuffix("Exception") in _OF_PATHS or words.startswith("Mkdirs failed"):
        return UsageError(f"Spark can't use this path: {_first_line(words)}")
    file = _FILE.search(text)
    where = f"{file[1]}: " if file and file[1] not in words else ""
    return PostdateError(f"Spark: {where}{kind}: {_first_line(words)}{_hint(text)}")


def _hint(text: str) -> str:
    return next((f" ({hint})" for words, hint in _HINTS.items() if words in text), "")


def _made(kind: type[PostdateError], message: str) -> PostdateError:
    # Some are made of more than a text; the nearest of their bases that is not says the same.
    for base in kind.__mro__:
        if not any("__init__" in vars(one) for one in base.__mro__ if issubclass(one, PostdateError)):
            break
    return base(message) if issubclass(base, PostdateError) else PostdateError(message)


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    line = line.partition(" SQLSTATE:")[0]
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"
