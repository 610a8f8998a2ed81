"""The command line on the shared Azurite, with an environment of its own."""

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from cli_cases import Done, on_endpoint, run

from postdate.settings import child_environment

STORE = """
from contextlib import asynccontextmanager
from postdate.backends.memory import MemoryAccount, MemoryBackend

#: Outlives the endpoints of one test.
account = MemoryAccount()

@asynccontextmanager
async def open_store(settings):
    yield MemoryBackend(account, settings.table_name, None, frozenset()).store
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the developer's has a say, and no log handler stays."""
    for name in child_environment():
        if name.startswith(("POSTDATE_", "AzureWebJobsStorage")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    logger = logging.getLogger("postdate")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def cli(capsys, monkeypatch) -> Callable[..., Done]:
    """Run a command inside this process."""
    return lambda *arguments, stdin=b"": run(capsys, monkeypatch, *arguments, stdin=stdin)


@pytest.fixture
def storage(azurite_connection: str, endpoint_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Points the environment at the shared Azurite, with nothing set up; the endpoint's name."""
    monkeypatch.setenv("POSTDATE_CONNECTION", azurite_connection)
    monkeypatch.setenv("POSTDATE_ENDPOINT", endpoint_name)
    return endpoint_name


@pytest.fixture
def orders(storage: str) -> str:
    """A queue that is there, of an endpoint that is set up."""
    name = f"orders-{storage[-8:]}"
    on_endpoint(lambda endpoint: endpoint.setup(name))
    return name


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The environment names a store in memory."""
    (tmp_path / "cli_store.py").write_text(STORE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("POSTDATE_STORE", "cli_store:open_store")
    yield "cli_store:open_store"
    sys.modules.pop("cli_store", None)
