"""What tests and samples share: a Java for Spark that starts fast."""

import sys
from pathlib import Path

from postdate.settings import set_default

#: Classes that Spark loads, as Java maps them; `make test` has it made by tests/java_archive.py.
ARCHIVE = Path(sys.prefix, ".spark.jsa")


def pytest_configure() -> None:
    """Have Java spend little on what pays off only in long runs: optimised code, and threads that collect.

    For all that tests start too. An archive that is missing or of another Java is passed over without a word.
    """
    set_default(
        "JDK_JAVA_OPTIONS",
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
        f" -XX:SharedArchiveFile={ARCHIVE}",
    )
