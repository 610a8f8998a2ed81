"""What tests and samples share: who runs beside whom, and a Java for Spark that starts fast."""

import sys
from pathlib import Path

import pytest

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


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `--dist loadgroup`, a file is run by one process; so is all that shares the session of Spark.

    Tests marked `apart` go to any. What takes long begins first, so that nobody waits for it at the end.
    """
    long = {item.path for item in items if item.get_closest_marker("slow")}
    for item in items:
        if not item.get_closest_marker("apart"):
            on_session = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if on_session else item.path.stem))
    items.sort(key=lambda item: not (item.path in long or item.get_closest_marker("apart")))
