"""A Spark session on this machine, quiet, and our data sources in any session."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postdate.errors import ConfigurationError
from postdate.settings import set_default, variable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LEAST = 17
_HOW = (
    "install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) or "
    "point JAVA_HOME at it"
)
_EXTRA = "Spark is not installed; pip install 'postdate[spark]'"
#: Spark demands it of every JVM; runtimes that were cut down lack it.
_MODULE = "jdk.incubator.vector"
_ASK_SECONDS = 30
_STDERR = 2
#: For few rows and small machines; a conf of yours wins.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def local_session(
    master: str = "local[*,4]", *, name: str = "postdate", log: Path | None = None, **conf: str
) -> "SparkSession":
    """A session on this machine that can read and write our data sources; stop it when you are done.

    Listens on loopback only and shows no progress. Timestamps are UTC.

    Args:
        master: Spark's; `local[N,F]` for N tasks at once, each tried F times at most.
        name: the application's.
        log: where Spark writes what it has to say; default: a file that is deleted at the end.
        conf: Spark's settings, dots written as `__` (`spark__executor__memory="2g"`).

    Raises:
        ConfigurationError: pyspark, pyarrow or a Java that Spark can use is missing.
    """
    check_java()
    try:
        import pyarrow  # noqa: F401, ICN001, PLC0415 - every task needs it: say so before the JVM starts
        from py4j.protocol import Py4JError  # noqa: PLC0415 - of the extra `spark`
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.logger import PySparkLogger  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from postdate.spark.failures import translated  # noqa: PLC0415 - imports pyspark
    except ImportError as error:
        raise ConfigurationError(f"{_EXTRA} ({error})") from None
    # Tasks run in the Python that runs this, where Postdate is; they write nothing into our terminal.
    set_default("PYSPARK_PYTHON", sys.executable)
    settings = {**_DEFAULTS, **{key.replace("__", "."): value for key, value in conf.items()}}
    builder: Any = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _noise_into(log) as where:
        try:
            session: SparkSession = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            atexit.unregister(where.unlink)  # whoever reads the error reads it too
            raise ConfigurationError(
                f"Spark did not start with master {master!r} ({translated(str(error))}); see {where}"
            ) from None
        session.sparkContext.setLogLevel("ERROR")
    # It writes each error of Spark's, with its whole trace, to stderr before anybody can tell it in one line.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    register(session)
    return session


@contextmanager
def _noise_into(log: Path | None) -> Iterator[Path]:
    """While the JVM is started, what goes to stderr goes to a file; the JVM goes on writing there."""
    if log is None:
        descriptor, name = tempfile.mkstemp(prefix="postdate-spark-", suffix=".log")
        log = Path(name)
        atexit.register(log.unlink, missing_ok=True)
    else:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    try:
        os.dup2(descriptor, _STDERR)
        yield log
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(descriptor)


def register(session: "SparkSession") -> None:
    """Make `postdate` and the other formats of ours known to a session, and let filters reach them."""
    from postdate.spark.source import SOURCES  # noqa: PLC0415 - imports pyspark, which `check_java` does not need

    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in SOURCES:
        session.dataSource.register(source)


def check_java() -> None:
    """Find out whether the Java that Spark would start is one that it can use.

    Raises:
        ConfigurationError: there is none, it is too old, or lacks a module that Spark needs.
    """
    home = variable("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise ConfigurationError(f"Spark needs Java {JAVA_LEAST} or later, and {where}; {_HOW}")
    try:
        asked = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "--list-modules"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{java} does not run ({error}); {_HOW}") from None
    found = re.search(r"^java\.base@(\d+)", asked.stdout, re.MULTILINE)
    if found is None or int(found[1]) < JAVA_LEAST:
        version = found[1] if found else "older than 9"
        raise ConfigurationError(f"Spark needs Java {JAVA_LEAST} or later, and {java} is {version}; {_HOW}")
    if _MODULE not in asked.stdout:
        raise ConfigurationError(
            f"{java} lacks the module {_MODULE}, which Spark needs (runtimes that were cut down do); {_HOW}"
        )
