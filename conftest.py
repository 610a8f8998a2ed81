"""What tests and samples share: who runs beside whom, and a Java for Spark that starts fast."""

import sys
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

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


#: Tests that wait long, and need nothing of the others in their file: each may go to another process.
APART = (
    "tests/conformance/test_azure_storage.py::TestAzureLease",
    "tests/docs/test_code_blocks.py::test_scripts_run",
    "tests/docs/test_code_blocks.py::test_sessions_run",
    "tests/integration/test_legacy_timeouts.py",
)
#: Tests on Spark that start programs with sessions of their own; all others there share one session.
PROGRAMS = ("test_bulk_drain_killed", "test_cluster", "test_drain_command")


class Groups(LoadScopeScheduling):
    """Tests of a file go to one process, and so do all that share the session of Spark.

    Not xdist's `loadgroup`: its marks have no effect with pytest 9.2, which keeps ids elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if nodeid.startswith(APART):
            return nodeid
        if file.startswith("tests/spark/") and Path(file).stem not in PROGRAMS:
            return "spark"
        return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    """Our groups, whatever `--dist` says."""
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that nobody waits for it at the end."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: not (item.path in long or item.nodeid.startswith(APART)))
