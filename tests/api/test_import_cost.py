"""Importing `postdate` loads no cloud library, no command line and no settings: they come when used."""

import subprocess
import sys

import pytest

HEAVY = (
    "azure",
    "aiohttp",
    "typer",
    "rich",
    "pydantic",
    "pydantic_settings",
    "msgspec",
    "opentelemetry",
    "asyncio",
)


def loaded_after(statement: str) -> set[str]:
    """The top-level packages that a new interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_after("import postdate")
    assert "postdate" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("name", ["PostdateError", "UsageError", "DestinationNotFound"])
def test_catching_an_error_costs_no_more(name):
    assert loaded_after(f"from postdate import {name}").isdisjoint(HEAVY)


def test_an_endpoint_loads_no_cloud_library_before_it_needs_one():
    loaded = loaded_after("from postdate import Endpoint, Outgoing, Settings, load_settings")
    assert loaded.isdisjoint({"azure", "aiohttp", "typer", "rich"})
    assert "pydantic" in loaded
