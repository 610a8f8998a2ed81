"""What is known to go wrong when timeouts are migrated (nservicebus-azure, 5.4), and does not go wrong here."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from migrate_cases import FIRST, SqlStore, azure_timeout, on_parts, sql_row
from postgres_cases import running_postgres

from postdate import Endpoint
from postdate.model import headers as h
from postdate.spark.migrating import AzureSource, SqlSource
from postdate.spark.migrating.sources import Chosen

ALL = Chosen(margin_s=0)


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as text:
        yield text


@pytest.fixture(params=["sqlite", "postgresql"])
def source(request, tmp_path):
    if request.param == "sqlite":
        return SqlSource("sqlite", str(tmp_path / "old.db"))
    return SqlSource("postgresql", request.getfixturevalue("postgres"))


@pytest.fixture
def store(source, postdate_settings, reference):
    made = SqlStore(source, postdate_settings.endpoint)
    made.create()
    return made


async def migrate_all(worker, found):
    return [await worker.migrate(n, within) for n, within in enumerate(found)]


async def rows(endpoint):
    return [row async for row in endpoint.parts.backend.store.upcoming()]


@pytest.fixture
def new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_due_times_do_not_shift_with_the_zone_of_the_host(new_york, postdate_settings, store, on_endpoint):
    assert datetime(2040, 3, 1, tzinfo=UTC).astimezone().utcoffset() == timedelta(hours=-5)
    store.fill(1)
    before = store.rows()
    # Exactly at the cut-off, and one second before it: the cut-off does not shift either.
    early = sql_row(store.source, 7, FIRST - timedelta(seconds=1))
    store.put([early])

    async def there_and_back(worker, found):
        await worker.stage(0, found[0])
        await worker.give_back(0)

    chosen = Chosen(FIRST)
    on_parts(postdate_settings, store.source, "back", there_and_back, chosen=chosen)
    assert [row for row in store.rows() if row in before] == before
    on_parts(postdate_settings, store.source, "one", migrate_all, chosen=chosen)
    (row,) = on_endpoint(rows)
    assert row.delayed.due_at == FIRST
    assert row.key.row.startswith("20400301070809_987654_")
    assert len(store.rows()) == 1


def test_rows_go_to_the_table_of_the_endpoints_real_name(postdate_settings, tmp_path):
    """Of an escaped name, the tool looks for another table."""
    name = f"Contoso.{postdate_settings.endpoint}"
    settings = postdate_settings.model_copy(update={"endpoint": name})
    store = SqlStore(SqlSource("sqlite", str(tmp_path / "old.db")), name)
    store.create()
    store.fill(1)
    assert store.table == f'"Contoso_{postdate_settings.endpoint}_TimeoutData"'

    async def set_up():
        async with Endpoint(settings) as endpoint:
            await endpoint.setup("target")

    asyncio.run(set_up())
    table, due_at = on_parts(settings, store.source, "one", _migrated)
    assert table == settings.table_name
    assert table != settings.model_copy(update={"endpoint": name.replace(".", "_")}).table_name
    assert due_at == FIRST


async def _migrated(worker, found):
    await migrate_all(worker, found)
    return worker.ground.table, await worker.ground.backend.store.next_due()


def test_the_message_id_is_the_original_one_and_the_managers_headers_are_gone(
    postdate_settings, store, on_endpoint
):
    store.fill(1)
    on_parts(postdate_settings, store.source, "one", migrate_all)
    (row,) = on_endpoint(rows)
    message = row.delayed.message
    assert (message.message_id, message.body) == ("m000000", b'{"n":0}')
    assert message.headers == {h.MESSAGE_ID: "m000000", "Größe": "XL"}
    # Not the endpoint that has put it off: the one that it is for.
    assert row.delayed.destination == "target" != postdate_settings.endpoint


@pytest.mark.parametrize("state", [None, b""])
def test_a_timeout_without_a_body_is_moved(postdate_settings, store, on_endpoint, state):
    store.put([sql_row(store.source, 1, FIRST, State=state)])
    on_parts(postdate_settings, store.source, "one", migrate_all)
    (row,) = on_endpoint(rows)
    assert row.delayed.message.body == b""
    assert store.rows() == []


def test_more_than_a_full_batch_of_leftovers_is_moved_whole(postdate_settings, store, on_endpoint):
    """The tool's purge loses one of each hundred leftovers."""
    store.fill(250)

    async def stage(worker, found):
        await worker.stage(0, found[0])
        return found

    planned = on_parts(postdate_settings, store.source, "one", stage, rows=1_000)
    assert store.rows() == []

    async def again(worker, found):
        return await migrate_all(worker, planned)

    (done,) = on_parts(postdate_settings, store.source, "one", again)
    assert (done.moved, done.found, len(on_endpoint(rows))) == (250, 250, 250)


def with_timeouts(settings):
    name = f"T{settings.endpoint[-8:]}"
    return settings.model_copy(
        update={"timeout_table": name, "timeout_state_container": f"{name}-states".lower()}
    )


OLD, FAR = datetime(2001, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)


async def put_azure(worker, found):
    timeouts = worker.ground.backend.timeouts
    await timeouts.create()
    made = [azure_timeout(worker.ground.endpoint, n, due_at) for n, due_at in enumerate((OLD, FIRST, FAR))]
    for one in made:
        await timeouts.add(one)
    return made


async def staged(worker, found):
    for n, within in enumerate(found):
        await worker.stage(n, within)
    return len(found)


def test_all_rows_of_a_timeout_go_so_that_no_manager_finds_it_again(postdate_settings, reference):
    """The tool hides time rows only: a host with a new name finds saga rows, the dispatcher main rows."""
    settings = with_timeouts(postdate_settings)
    made = on_parts(settings, AzureSource(), "one", put_azure)
    on_parts(settings, AzureSource(), "one", staged, chosen=ALL)

    async def look(worker, found):
        timeouts = worker.ground.backend.timeouts
        found = [one async for page in timeouts.due(FAR, everywhere=True) for one in page]
        return found, [await timeouts.get(one.id) for one in made]

    assert on_parts(settings, AzureSource(), "one", look) == ([], [None, None, None])


def test_what_is_given_back_is_back_whatever_its_age(postdate_settings, reference):
    """The tool leaves rows hidden that are due more than a year ago."""
    settings = with_timeouts(postdate_settings)
    on_parts(settings, AzureSource(), "one", put_azure)

    async def content(worker, found):
        timeouts = worker.ground.backend.timeouts
        return sorted([str(row) async for page in timeouts._pages("") for row in page])

    before = on_parts(settings, AzureSource(), "one", content)
    count = on_parts(settings, AzureSource(), "one", staged, chosen=ALL)
    assert on_parts(settings, AzureSource(), "one", content) == []

    async def give_back(worker, found):
        return sum([(await worker.give_back(n)).given_back for n in range(count)])

    assert on_parts(settings, AzureSource(), "one", give_back) == 3
    assert on_parts(settings, AzureSource(), "one", content) == before


def test_what_is_due_within_the_margin_stays_with_the_old_manager(postdate_settings, reference):
    settings = with_timeouts(postdate_settings)
    on_parts(settings, AzureSource(), "one", put_azure)
    done = on_parts(settings, AzureSource(), "one", migrate_all)
    assert (sum(one.moved for one in done), sum(one.too_soon for one in done)) == (2, 1)
