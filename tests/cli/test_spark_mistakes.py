"""Mistakes with `postdate spark`: one line that names the way out, before Spark is started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from postdate.cli.main import main
from postdate.settings import child_environment

pytest.importorskip("pyspark")

FORECAST = ["spark", "forecast", "--rate", "5"]


@pytest.fixture(autouse=True)
def an_endpoint(monkeypatch):
    monkeypatch.setenv("POSTDATE_ENDPOINT", "Contoso.Shop")
    monkeypatch.setenv("POSTDATE_CONNECTION", "UseDevelopmentStorage=true")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("POSTDATE_CONNECTION", "nonsense", "POSTDATE_CONNECTION is not a connection string"),
        ("POSTDATE_CONNECTION", "", "no storage account is configured; set POSTDATE_CONNECTION"),
        ("POSTDATE_ENDPOINT", "", "the endpoint's name is empty; set POSTDATE_ENDPOINT"),
    ],
)
def test_wrong_settings_are_told_before_spark_is_started(variable, value, said, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert main(FORECAST) == 2
    assert "JAVA_HOME=/no/such/java has none" in capsys.readouterr().err
    monkeypatch.setenv(variable, value)
    assert main(FORECAST) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err


@pytest.mark.parametrize(
    "command", [FORECAST, ["spark", "migrate", "status", "--run", "x"]], ids=lambda words: words[1]
)
def test_without_the_extra_the_way_to_get_it_is_told(command, monkeypatch, capsys):
    for module in ("postdate.spark", "postdate.spark.migrating"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(command) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "Spark is not installed; pip install 'postdate[spark]'" in told.err


def test_a_master_that_is_none_is_named_and_what_spark_said_is_kept():
    done = subprocess.run(
        [sys.executable, "-m", "postdate", *FORECAST, "--master", "locl[2]"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "Spark did not start with master 'locl[2]'" in done.stderr
    log = Path(done.stderr.rpartition("; see ")[2].strip())
    try:
        assert "aster" in log.read_text(encoding="utf-8")
    finally:
        log.unlink()


def test_sigterm_leaves_no_file_with_settings(tmp_path):
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "postdate", "spark", "schedule", tmp_path, "--format", "csv"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(TMPDIR=str(tmp_path / "temporary")),
    ) as running:
        while not (left := list((tmp_path / "temporary").glob("postdate-*.json"))):
            assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=100)
    assert running.returncode > 0, told  # by itself, not by the signal
    assert "Traceback" not in told
    assert not left[0].exists()
