"""`format("postdate.timeouts")`, and the commands of a migration."""

import json
import sqlite3
from datetime import UTC, timedelta

import pytest
from migrate_cases import FIRST, SqlStore, ids, sql_row, waiting
from pyspark.errors import PySparkException

from postdate.cli.main import main
from postdate.spark.migrating import SqlSource


@pytest.fixture
def store(tmp_path, postdate_settings):
    made = SqlStore(SqlSource("sqlite", str(tmp_path / "old.db")), postdate_settings.endpoint)
    made.create()
    made.fill(30)
    return made


def load(spark, reference, store, **options):
    options = {"source": "sqlite", "database": store.source.database, **options}
    return spark.read.format("postdate.timeouts").options(**reference.options(), **options).load()


def test_timeouts_are_read_as_they_are_stored(spark, reference, store):
    store.put([sql_row(store.source, 99, FIRST - timedelta(1), Headers="{")])
    frame = load(spark, reference, store, rowsPerPartition=16).orderBy("due_time")
    rows = frame.collect()
    assert len(rows) == 31
    assert rows[0].unreadable.startswith("column Headers is")
    first = rows[1]
    assert first.due_time.astimezone(UTC) == FIRST
    assert (first.destination, bytes(first.body), first.unreadable) == ("target", b'{"n":0}', None)
    assert first.headers["NServiceBus.Timeout.RouteExpiredTimeoutTo"] == "target"
    assert [row.saga_id is None for row in rows[1:4]] == [False, True, False]
    assert len(store.rows()) == 31


def test_azure_without_a_timeout_table_is_an_empty_frame(spark, reference):
    assert spark.read.format("postdate.timeouts").options(**reference.options()).load().count() == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"source": "db2"}, "there is no SQL dialect 'db2'"),
        ({"password": "hunter2"}, "secrets don't travel in plans"),
        ({"rowsPerPartition": "0"}, "is not a number of rows"),
    ],
)
def test_wrong_options_are_told(spark, reference, store, options, reason):
    with pytest.raises(PySparkException, match=reason) as told:
        load(spark, reference, store, **options).count()
    assert "hunter2" not in str(told.value)


@pytest.fixture
def command(spark, postdate_settings, monkeypatch, capsys):
    """`postdate spark migrate`, in the session that is there."""
    connection = postdate_settings.connection.get_secret_value()
    monkeypatch.setenv("POSTDATE_CONNECTION", connection)
    monkeypatch.setenv("POSTDATE_ENDPOINT", postdate_settings.endpoint)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def run(*words):
        code = main(["spark", "migrate", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_the_commands_tell_what_they_do(command, reference, on_endpoint, store):
    source = ["--source", "sqlite", "--database", store.source.database]
    store.put([sql_row(store.source, 99, FIRST, Destination="nowhere")])
    code, out, _ = command("preview", *source, "--json")
    assert (code, json.loads(out)["staged"], json.loads(out)["refused"]) == (1, 30, 1)
    code, out, err = command("run", "--run", "one", *source)
    assert code == 1
    assert "timeout 0d6f2c6e-4b8a-4d3f-9a5b-000000000063: destination queue 'nowhere'" in " ".join(
        err.split()
    )
    code, out, _ = command("status", "--run", "one", "--json")
    assert code == 0
    assert json.loads(out)["phase"] == "completed"
    assert json.loads(out)["moved"] == 30
    code, _, err = command("abort", "--run", "one")
    assert (code, "nothing was given back" in err) == (0, True)
    assert on_endpoint(waiting) == ids(30)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--run", "other"], "has no migration run 'other'"),
        (["run", "--run", "a/b"], "run 'a/b': write letters, digits"),
        (["preview", "--source", "oracle"], "no driver for oracle comes with Postdate"),
        (["preview", "--database", "x"], "--source azure takes no database"),
        (["preview", "--source", "sqlite", "--database", "no.db"], "no.db: there is no such file"),
        (["preview", "--source", "postgresql", "--database", "env:NOT_SET"], "NOT_SET is not set"),
        (["preview", "--source", "postgresql", "--database", "password=hunter2"], "holds a password"),
        (["run", "--run", "one", "--from", "2026-03-01T00:00:00"], "no time zone"),
        (["run", "--run", "one", "--margin", "-5m"], "--margin"),
        (
            ["run", "--run", "x", "--source", "sqlite", "--database", "x", "--keep-bodies"],
            "--keep-bodies is for",
        ),
    ],
)
def test_wrong_usage_gets_one_line(command, reference, words, said):
    code, _, err = command(*words)
    assert (code, "Traceback" in err) == (2, False)
    assert said in " ".join(err.split())
    assert "hunter2" not in err


def test_a_database_that_is_none_and_one_that_does_not_answer_are_told(command, reference, tmp_path):
    (tmp_path / "text.db").write_text("no database at all, but a text of some length\n" * 40)
    code, _, err = command("preview", "--source", "sqlite", "--database", str(tmp_path / "text.db"))
    assert (code, "file is not a database" in err) == (1, True)
    sqlite3.connect(tmp_path / "empty.db").execute("create table x (y)")
    code, _, err = command("preview", "--source", "sqlite", "--database", str(tmp_path / "empty.db"))
    assert (code, "no such table" in err) == (1, True)
    nobody = f"host={tmp_path} user=x dbname=y"
    code, _, err = command("preview", "--source", "postgresql", "--database", nobody)
    assert code == 3
    assert "Traceback" not in err
