"""All tests in this folder take real seconds: leases run out, processes are killed and frozen."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from postdate.settings import Settings

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before what is slow is put first
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def azurite_settings(azurite) -> Settings:
    """Settings of an endpoint on the shared Azurite; neither the environment nor a file has a say."""
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in Settings.model_fields.items()
    }
    return Settings(**defaults | {"endpoint": "chaos", "connection": SecretStr(azurite.connection_string)})
