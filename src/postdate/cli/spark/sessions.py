"""What the bulk commands share: a session, settings for its tasks, a bar, frames from files."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postdate.cli.command import Call
from postdate.cli.progress import progress_display
from postdate.clock import SystemClock
from postdate.endpoint import Endpoint
from postdate.errors import ConfigurationError, PostdateError, UsageError
from postdate.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postdate.spark import SettingsReference

Master = Annotated[
    str,
    typer.Option(help="Where Spark runs: local[N,F] is N tasks at once on this machine, each tried F times."),
]
DEFAULT_MASTER = "local[*,4]"
FileFormat = Annotated[
    str | None, typer.Option("--format", help="csv, json (an object per line) or parquet; default: by name.")
]
_FORMATS = ("csv", "json", "parquet")


@contextmanager
def spark_session(call: Call, master: str) -> "Iterator[tuple[SparkSession, SettingsReference]]":
    """A session, and where its tasks find the settings of this call.

    On this machine they get them in a file that only this user can read. Elsewhere they have an environment
    of their own: POSTDATE_CONNECTION, or what an identity needs, must be set there.
    """
    with needs_spark():
        from postdate.spark import SettingsReference, local_session  # noqa: PLC0415 - late: see the package
        from postdate.spark.reference import shared_with_tasks  # noqa: PLC0415
    settings = call.settings()
    with _terminated_as_interrupted(), shared_with_tasks(settings) as file:
        here = master.startswith("local")
        reference = file if here else SettingsReference(settings.endpoint, settings.delays_table)
        reference.load()  # what is wrong with them is told now,
        asyncio.run(_opened(settings))  # before Spark starts, which takes its time
        session = local_session(master)
        try:
            yield session, reference
        finally:
            session.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: no file with settings is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def needs_spark() -> Iterator[None]:
    """For imports of `postdate.spark`: says in one line that the extra is missing.

    Raises:
        ConfigurationError: it is.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"Spark is not installed; pip install 'postdate[spark]' ({error})") from None


async def _opened(settings: Settings) -> None:
    """Open an endpoint and close it; the storage account is not asked yet."""
    async with Endpoint(settings):
        pass


@contextmanager
def task_progress(call: Call, what: str) -> Iterator[Callable[[int, int], None]]:
    """Tells on stderr how many tasks have ended, of how many."""
    with progress_display(100, SystemClock(), prints=call.out.json and sys.stdout.isatty()) as display:

        def told(ended: int, of: int) -> None:
            display.update(f"{what}: {ended:,} of {of:,} tasks", 100 * ended // of if of else 0)

        yield told


def read_frame(
    session: "SparkSession", paths: list[Path], file_format: str | None, select: list[str]
) -> "DataFrame":
    """The rows of files, CSV with a header line and all its values as text.

    Raises:
        UsageError: a file is not there, or its format is not known.
    """
    from postdate.spark.failures import told_in_one_line  # noqa: PLC0415 - imports pyspark

    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
    suffix = paths[0].suffix.lstrip(".").lower()
    kind = file_format or {"jsonl": "json", "ndjson": "json"}.get(suffix, suffix)
    if kind not in _FORMATS:
        raise UsageError(
            f"{paths[0]}: {f'{kind} is no format that is read' if kind else 'its name tells no format'}; "
            "give --format csv, json or parquet"
        )
    options = (
        {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST"} if kind == "csv" else {}
    )
    if kind == "json":
        options = {"mode": "FAILFAST"}
    with _named(", ".join(map(str, paths))), told_in_one_line():
        frame = session.read.format(kind).options(**options).load([str(path) for path in paths])
    with _named("--select"), told_in_one_line():
        return frame.selectExpr(*select) if select else frame


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Says of an error what it is about, where its text does not."""
    try:
        yield
    except PostdateError as error:
        told = str(error)
        raise type(error)(told if what in told else f"{what}: {told}") from error
