"""Migrations as users call them: counts, checksums, repeats, giving up."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from migrate_cases import FIRST, SqlStore, azure_rows, azure_timeout, ids, sql_row, waiting
from postgres_cases import running_postgres

from postdate.concurrency import for_each
from postdate.errors import UsageError
from postdate.legacy.ground import Selection
from postdate.spark.migrating import AzureSource, SqlSource, abort, migrate, preview, status
from postdate.spark.reference import shared_with_tasks

MANY = 20_000


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as text:
        yield text


@pytest.fixture
def postgres_store(postgres, postdate_settings):
    store = SqlStore(SqlSource("postgresql", postgres), postdate_settings.endpoint)
    store.create()
    return store


@pytest.fixture
def sqlite_store(tmp_path, postdate_settings):
    store = SqlStore(SqlSource("sqlite", str(tmp_path / "old.db")), postdate_settings.endpoint)
    store.create()
    return store


def settings_with_timeouts(settings):
    name = f"T{settings.endpoint[-8:]}"
    return settings.model_copy(
        update={"timeout_table": name, "timeout_state_container": f"{name}-states".lower()}
    )


@pytest.fixture
def azure_reference(reference, postdate_settings):
    with shared_with_tasks(settings_with_timeouts(postdate_settings)) as found:
        yield found


async def put_azure(endpoint, count):
    timeouts = endpoint.parts.backend.timeouts
    await timeouts.create()
    owner = endpoint.settings.endpoint
    made = [azure_timeout(owner, n, FIRST + n * timedelta(seconds=30)) for n in range(count)]
    await for_each(made, 32, timeouts.add)


@pytest.fixture
def on_azure(postdate_settings):
    from postdate import Endpoint

    def run(work, *arguments):
        async def opened():
            async with Endpoint(settings_with_timeouts(postdate_settings)) as endpoint:
                return await work(endpoint, *arguments)

        return asyncio.run(opened())

    return run


@pytest.mark.slow
def test_twenty_thousand_of_postgresql_are_moved_exactly(spark, reference, on_endpoint, postgres_store):
    postgres_store.fill(MANY)
    told = migrate(spark, reference, postgres_store.source, run="one")
    assert (told.phase, told.verified) == ("completed", True)
    assert (told.staged, told.moved, told.expected, told.found) == (MANY, MANY, MANY, MANY)
    assert told.checksum_staged == told.checksum_expected == told.checksum_found
    assert told.parts >= 10
    assert on_endpoint(waiting) == ids(MANY)
    assert postgres_store.rows() == []
    assert postgres_store.tables() == [], "the staging table is dropped"


def test_run_twice_changes_nothing(spark, reference, on_endpoint, sqlite_store):
    sqlite_store.fill(300)
    before = migrate(spark, reference, sqlite_store.source, run="one", rows_per_part=100)
    rows = on_endpoint(rows_of)
    again = migrate(spark, reference, sqlite_store.source, run="one", rows_per_part=100)
    assert replace(again, seconds=0) == replace(before, seconds=0)
    other = migrate(spark, reference, sqlite_store.source, run="two")
    assert (other.staged, other.moved, other.phase) == (0, 0, "completed")
    assert on_endpoint(rows_of) == rows
    told = status(reference, run="one")
    assert (told.phase, told.parts_completed, told.total.moved) == ("completed", told.parts, 300)


async def rows_of(endpoint):
    return [(row.key, row.etag) async for row in endpoint.parts.backend.store.upcoming()]


def test_azure_timeouts_are_moved_exactly(spark, azure_reference, on_endpoint, on_azure):
    on_azure(put_azure, 150)
    looked = preview(spark, azure_reference, AzureSource())
    told = migrate(spark, azure_reference, AzureSource(), run="one", rows_per_part=60)
    assert (looked.staged, told.staged, told.moved, told.found) == (150, 150, 150, 150)
    assert told.checksum_found == told.checksum_staged == looked.checksum_staged
    assert told.verified
    assert on_endpoint(waiting) == ids(150)
    assert on_azure(azure_rows) == ([], [])
    parts = [f"part/{n}" for n in range(told.parts)]
    assert on_azure(blobs_of_run) == ["manifest.json", *parts, "run.json", "term.json"]


async def blobs_of_run(endpoint):
    return [name.partition("/one/")[2] async for name in endpoint.parts.backend.bulk.names("migrate/one/")]


def test_what_can_not_be_moved_stays_and_is_told(spark, reference, on_endpoint, sqlite_store):
    sqlite_store.fill(3)
    source = sqlite_store.source
    odd = [
        sql_row(source, 10, FIRST, Destination="not there"),
        sql_row(source, 11, FIRST, Headers="{"),
        sql_row(source, 12, FIRST, Destination=None),
        sql_row(source, 13, FIRST, Time="noon"),
    ]
    sqlite_store.put(odd)
    before = sqlite_store.rows()
    looked = preview(spark, reference, source)
    assert (looked.staged, looked.refused, sqlite_store.rows()) == (3, 4, before)
    told = migrate(spark, reference, source, run="one")
    assert (told.moved, told.refused, told.verified) == (3, 4, True)
    assert {one for one, _ in told.examples} == {row[0] for row in odd}
    assert sqlite_store.rows() == odd
    assert on_endpoint(waiting) == ids(3)


def test_giving_up_a_run_that_is_completed_changes_nothing(spark, reference, on_endpoint, sqlite_store):
    sqlite_store.fill(20)
    migrate(spark, reference, sqlite_store.source, run="one")
    told = abort(spark, reference, run="one")
    assert (told.phase, told.given_back, told.moved) == ("completed", 0, 20)
    assert sqlite_store.rows() == []
    assert on_endpoint(waiting) == ids(20)


def test_other_arguments_are_told(spark, reference, sqlite_store):
    sqlite_store.fill(2)
    source = sqlite_store.source
    migrate(spark, reference, source, run="one", selection=Selection(FIRST))
    # The same time of day, a day later: the tool takes it for the same cut-off.
    with pytest.raises(UsageError, match=r"run 'one' began with .*2040-03-01.*not with .*2040-03-02"):
        migrate(spark, reference, source, run="one", selection=Selection(FIRST + timedelta(days=1)))
    with pytest.raises(UsageError, match="no migration run 'other'"):
        abort(spark, reference, run="other")
    with pytest.raises(UsageError, match="no migration run 'other'"):
        status(reference, run="other")
    with pytest.raises(UsageError, match="no time zone"):
        migrate(spark, reference, source, run="naive", selection=Selection(FIRST.replace(tzinfo=None)))


def test_only_what_is_due_from_the_cut_off_is_taken(spark, reference, on_endpoint, postgres_store):
    postgres_store.fill(10)
    cut_off = FIRST + timedelta(seconds=28)
    told = migrate(spark, reference, postgres_store.source, run="one", selection=Selection(cut_off))
    assert (told.moved, told.verified) == (6, True)
    assert on_endpoint(waiting) == ids(10)[4:]
    assert len(postgres_store.rows()) == 4
