"""docs/reference says what the code says."""

import importlib.util
from pathlib import Path

import pytest

from postdate.cli.main import COMMANDS
from postdate.events import EVENTS
from postdate.settings import PREFIX, Settings

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = generator().pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_generated_one(name):
    committed = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert committed == PAGES[name], "run `python docs/generate.py`"


def test_the_pages_hold_every_command_setting_and_event():
    assert all(f"## postdate {name}\n" in PAGES["cli.md"] for name in COMMANDS)
    assert all(f"`{PREFIX}{name.upper()}`" in PAGES["settings.md"] for name in Settings.model_fields)
    assert all(f"`{event.name}`" in PAGES["events.md"] for event in EVENTS)
