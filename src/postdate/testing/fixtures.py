"""Pytest fixtures for tests against a real storage service; pytest loads them by itself.

    azurite             session   an `Azurite` on disk and on free ports, shared by all tests
    azurite_connection  function  its connection string
    endpoint_name       function  a name that no other test has, so that tests don't meet in one table
    postdate_settings   function  `Settings` for that endpoint on that Azurite

They need the extra: `pip install 'postdate[azurite]'`. Without it, tests that ask for them are skipped,
and fail where the environment has `CI`. All imports of ours are late: pytest loads this module in every
project that has Postdate installed.
"""

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from postdate.local import Azurite
    from postdate.settings import Settings

# Queue names take 63 characters, and more may be made of an endpoint's name.
_READABLE_LENGTH = 30


@pytest.fixture(scope="session")
def azurite() -> "Iterator[Azurite]":
    """A running `postdate.local.Azurite`, started at its first use and stopped at the end of the session.

    Its data is on disk in a temporary folder. Tests share it, so use names of your own (`endpoint_name`),
    and start another one for a test that stops it.
    """
    from postdate.local import Azurite, AzuriteError
    from postdate.local.node import find_node
    from postdate.settings import in_ci

    try:
        find_node()
    except AzuriteError as error:
        if in_ci():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with Azurite() as running:
        yield running


@pytest.fixture
def azurite_connection(azurite: "Azurite") -> str:
    """Connection string of the shared Azurite."""
    return azurite.connection_string


@pytest.fixture
def endpoint_name(request: pytest.FixtureRequest) -> str:
    """An endpoint's name for this test alone: the test's name and eight random characters."""
    name = str(request.node.name).removeprefix("test_")
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_READABLE_LENGTH].strip("-")
    return f"{readable or 'endpoint'}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def postdate_settings(azurite_connection: str, endpoint_name: str) -> "Settings":
    """Settings of the endpoint `endpoint_name` on the shared Azurite, the rest being the defaults.

    Neither the environment nor a settings file has a say. For other values:
    `postdate_settings.model_copy(update={"lookahead": timedelta(0)})`.
    """
    from pydantic import SecretStr
    from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

    from postdate.settings import BackendName, Settings

    class CodeSettings(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
            init_settings: PydanticBaseSettingsSource,
            *others: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
            **more: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings,)

    values: dict[str, Any] = {
        "endpoint": endpoint_name,
        "backend": BackendName.AZURE_STORAGE,
        "connection": SecretStr(azurite_connection),
    }
    return CodeSettings(**values)
