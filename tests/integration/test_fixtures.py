"""The pytest fixtures for users, and what they do where Azurite can't be had."""

import subprocess
import sys

import pytest

from postdate.settings import Settings, child_environment

WITHOUT_THE_EXTRA = """
import pytest
from postdate.local import AzuriteError, node

@pytest.fixture(autouse=True, scope="session")
def nothing_installed():
    def find_node():
        raise AzuriteError("no node here")
    node.find_node = find_node
"""


def test_they_give_an_endpoint_of_its_own(postdate_settings: Settings, endpoint_name, azurite):
    assert postdate_settings.endpoint == endpoint_name
    assert postdate_settings.account().connection_string.get_secret_value() == azurite.connection_string
    assert postdate_settings.own_queue == endpoint_name


def test_the_environment_has_no_say(monkeypatch, request):
    monkeypatch.setenv("POSTDATE_LOOKAHEAD", "nonsense")
    monkeypatch.setenv("POSTDATE_SETTINGS_FILE", "nowhere.toml")
    monkeypatch.setenv("POSTDATE_ERROR_QUEUE", "elsewhere")
    assert request.getfixturevalue("postdate_settings").error_queue == "error"


@pytest.mark.parametrize("strange", ["A b_C", "é" * 80, "x" * 80])
def test_names_are_queue_names_too(endpoint_name, strange):
    assert Settings(endpoint=endpoint_name).own_queue == endpoint_name
    assert len(endpoint_name) <= 40


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_without_the_extra_tests_are_skipped_but_fail_in_ci(ci, outcome, tmp_path):
    (tmp_path / "conftest.py").write_text(WITHOUT_THE_EXTRA, encoding="utf-8")
    (tmp_path / "test_it.py").write_text("def test_it(azurite_connection): pass", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=child_environment(CI=ci),
        capture_output=True,
        text=True,
    )
    assert outcome in done.stdout
    assert "no node here" in done.stdout
    assert done.returncode == (1 if ci else 0)
