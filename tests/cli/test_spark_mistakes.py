"""Mistakes with `postdate spark`: one line that names the way out, before Spark is started."""

import sys

import pytest

from postdate.cli.main import main

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
