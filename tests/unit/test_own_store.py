"""A delayed store of the user's own: rows go there, and all else stays on the account."""

import sys
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate import CancelOutcome, Endpoint
from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.backends.own_store import WithOwnStore
from postdate.cli.cost import expected
from postdate.clock import StorageClock
from postdate.compose import put_together
from postdate.engine.acceptance import Outgoing
from postdate.engine.changes import RescheduleOutcome
from postdate.errors import AccessDenied, ConfigurationError, StorageUnreachable
from postdate.events import Events
from postdate.model.requests import Service
from postdate.settings import load_settings
from postdate.sync import Endpoint as SyncEndpoint
from postdate.testing.clock import VirtualClock

HOUR = timedelta(hours=1)
AT_ONCE = timedelta(0)


def own_store():
    """A store on an account that has nothing but this one table."""
    return MemoryBackend(MemoryAccount(), "theirs", VirtualClock(), frozenset()).store


def open_with(store, account, clock):
    return Endpoint("Unit.Tests", backend="memory", memory=account, clock=clock, store=store)


# --- at work --------------------------------------------------------------------------------------


async def test_rows_are_in_the_store_and_deliveries_in_queues_of_the_account():
    store, account, clock = own_store(), MemoryAccount(), VirtualClock()
    async with open_with(store, account, clock) as endpoint:
        await endpoint.setup("orders")
        handles = [await endpoint.schedule("orders", n, delay=HOUR) for n in range(3)]
        assert account.tables == {}
        assert sorted([m.body async for m in endpoint.upcoming()]) == [b"0", b"1", b"2"]
        assert await endpoint.cancel(handles[0]) is CancelOutcome.CANCELLED
        moved = await endpoint.reschedule(handles[1], delay=2 * HOUR)
        assert moved.outcome is RescheduleOutcome.MOVED
        await clock.advance(HOUR)
        assert (await endpoint.deliver_due()).handed_over == 1
        assert [d.json() async for d in endpoint.receive("orders", idle=AT_ONCE)] == [2]
        assert await store.next_due() == moved.due_at


async def test_several_processes_share_a_store_as_they_share_a_table():
    store, account, clock = own_store(), MemoryAccount(), VirtualClock()
    async with open_with(store, account, clock) as one, open_with(store, account, clock) as two:
        await one.setup("orders")
        handle = await one.schedule("orders", "x", delay=HOUR)
        assert await two.cancel(handle) is CancelOutcome.CANCELLED
        assert await one.get(handle) is None


async def test_setup_creates_the_store_and_no_table():
    account = MemoryAccount()
    async with open_with(own_store(), account, VirtualClock()) as endpoint:
        created = await endpoint.setup()
        assert "store postdate.backends.memory.table.MemoryTable" in created
        assert not [name for name in created if name.startswith("table")]
        assert (await endpoint.setup(), account.tables) == ([], {})


async def test_large_bodies_stay_on_the_account():
    store, account, clock = own_store(), MemoryAccount(), VirtualClock()
    async with open_with(store, account, clock) as endpoint:
        await endpoint.setup("orders")
        await endpoint.schedule("orders", b"x" * 100_000, delay=HOUR)
        assert sum(map(len, account.payloads.values())) == 1
        await clock.advance(HOUR)
        await endpoint.deliver_due()
        assert [d.body async for d in endpoint.receive("orders", idle=AT_ONCE)] == [b"x" * 100_000]


async def test_people_are_told_of_the_store_instead_of_the_table():
    class Account(MemoryBackend):
        @property
        def description(self):
            return {"backend": "somewhere", "table": "a table", "lease": "a container"}

        async def reach(self):
            return {"table": StorageUnreachable("no table service here"), "blob": None}

    store = own_store()
    backend = WithOwnStore(Account(MemoryAccount(), "ours", VirtualClock(), frozenset()), store)
    assert backend.description == {
        "backend": "somewhere",
        "lease": "a container",
        "store": "postdate.backends.memory.table.MemoryTable",
    }
    # A store that is not set up is an answer all the same.
    assert await backend.reach() == {"store": None, "blob": None}

    async def down():
        raise StorageUnreachable("no database here")

    store.next_due = down
    assert str((await backend.reach())["store"]) == "no database here"


def test_the_forecast_leaves_out_what_the_store_asks_of_its_own_service():
    asked = {store: expected(load_settings(endpoint="X", store=store), 10) for store in (None, "m:open")}
    kinds = {
        store: {kind.service for line in lines for kind in line.requests} for store, lines in asked.items()
    }
    assert kinds[None] - kinds["m:open"] == {Service.TABLE}
    assert [line.what for line in asked[None]] == [line.what for line in asked["m:open"]]


# --- the account's time ---------------------------------------------------------------------------


class Machine:
    """A process whose clock is wrong, with a store that says nothing of the account's clock."""

    def __init__(self, wrong_by):
        self.true = VirtualClock()
        self.wrong = VirtualClock(self.true.now() + wrong_by)
        self.clock = StorageClock(self.wrong)
        self.settings = load_settings(endpoint="Unit.Tests", backend="memory", check_destinations=False)
        self.account = MemoryBackend(MemoryAccount(), self.settings.table_name, self.true, frozenset())
        self.store = own_store()
        self.asked = 0
        holder = self.account.lease.holder

        async def observed():
            self.asked += 1
            self.clock.observe(self.true.now(), sent=self.wrong.monotonic(), received=self.wrong.monotonic())
            return await holder()

        self.account.lease.holder = observed

    async def parts(self, clock=None):
        await self.store.create()
        await self.account.sender.create("orders")
        backend = WithOwnStore(self.account, self.store)
        return put_together(self.settings, backend, clock or self.clock, Events([]))

    async def due_times(self):
        return [row.delayed.due_at async for row in self.store.upcoming()]


@pytest.fixture(params=[-HOUR, HOUR], ids=["behind", "ahead"])
def machine(request):
    return Machine(request.param)


async def test_a_delay_counts_by_the_accounts_clock(machine):
    parts = await machine.parts()
    await parts.intake.schedule(Outgoing("orders", "x", delay=3 * HOUR))
    (due_at,) = await machine.due_times()
    assert timedelta(0) <= due_at - machine.true.now() - 3 * HOUR <= timedelta(seconds=2)


async def test_a_move_counts_by_the_accounts_clock(machine):
    handle = await (await machine.parts(machine.true)).intake.schedule(
        Outgoing("orders", "x", delay=5 * HOUR)
    )
    parts = await machine.parts()
    result = await parts.changes.reschedule(handle, delay=3 * HOUR)
    assert timedelta(0) <= result.due_at - machine.true.now() - 3 * HOUR <= timedelta(seconds=2)


@pytest.mark.parametrize("wait", [10, 59], ids=["early enough", "in the leader's hands"])
async def test_a_cancellation_is_judged_by_the_accounts_clock(machine, wait):
    handle = await (await machine.parts(machine.true)).intake.schedule(Outgoing("orders", "x", delay=HOUR))
    await machine.true.advance(timedelta(minutes=wait, seconds=45))
    outcome = await (await machine.parts()).changes.cancel(handle)
    assert outcome is (CancelOutcome.CANCELLED if wait == 10 else CancelOutcome.TOO_LATE)


async def test_what_is_gone_is_judged_by_the_accounts_clock(machine):
    handle = await (await machine.parts(machine.true)).intake.schedule(
        Outgoing("orders", "x", delay=HOUR / 2)
    )
    rows = [row async for row in machine.store.upcoming()]
    assert await machine.store.remove(rows) == [True]
    outcome = await (await machine.parts()).changes.cancel(handle)
    assert outcome is CancelOutcome.UNKNOWN


async def test_an_account_that_forbids_looking_at_the_lease_has_told_its_time_all_the_same(machine):
    observed = machine.account.lease.holder

    async def forbidden():
        await observed()
        raise AccessDenied("403")

    machine.account.lease.holder = forbidden
    parts = await machine.parts()
    await parts.intake.schedule(Outgoing("orders", "x", delay=3 * HOUR))
    assert len(await machine.due_times()) == 1


async def test_the_account_is_asked_once(machine):
    parts = await machine.parts()
    for _ in range(3):
        await parts.intake.schedule(Outgoing("orders", "x", delay=3 * HOUR))
    assert machine.asked == 1


# --- POSTDATE_STORE -------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that settings can name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        (tmp_path / "their_store.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, "their_store", raising=False)
        return "their_store:open_store"

    yield write
    sys.modules.pop("their_store", None)


GOOD = """
from contextlib import asynccontextmanager
from postdate.backends.memory import MemoryAccount, MemoryBackend

account = MemoryAccount()
said = []

@asynccontextmanager
async def open_store(settings):
    said.append(f"opened for {settings.endpoint}")
    try:
        yield MemoryBackend(account, settings.table_name, None, frozenset()).store
    finally:
        said.append("closed")
"""


async def test_the_setting_names_who_opens_the_store_and_it_is_closed_with_the_endpoint(module):
    async with Endpoint("Unit.Tests", backend="memory", store=module(GOOD)) as endpoint:
        theirs = sys.modules["their_store"]
        await endpoint.setup("orders")
        await endpoint.schedule("orders", "x", delay=HOUR)
        assert list(theirs.account.tables) == [endpoint.settings.table_name]
        assert theirs.said == ["opened for Unit.Tests"]
    assert theirs.said == ["opened for Unit.Tests", "closed"]


def test_synchronous_code_names_it_too(module):
    with SyncEndpoint("Unit.Tests", backend="memory", store=module(GOOD)) as endpoint:
        endpoint.setup("orders")
        endpoint.schedule("orders", "x", delay=HOUR)
        assert [message.body for message in endpoint.upcoming()] == [b"x"]
    assert sys.modules["their_store"].said == ["opened for Unit.Tests", "closed"]


async def test_the_environment_names_it_too_and_code_wins(module, monkeypatch):
    monkeypatch.setenv("POSTDATE_STORE", module(GOOD))
    async with open_world() as world:
        assert world.endpoint.settings.store == "their_store:open_store"
        assert world.account.tables == {}
    mine = own_store()
    async with open_with(mine, MemoryAccount(), VirtualClock()) as endpoint:
        assert endpoint.parts.backend.store is mine


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import nowhere_at_all", "there is no module 'nowhere_at_all'; install it, or name its folder in"),
        ("1 / 0", "importing 'their_store' raised ZeroDivisionError: division by zero"),
        ("raise OSError('Server=db;Password=x')", "importing 'their_store' raised OSError"),
        ("", "'open_store' is not there in module 'their_store'; name a function of it"),
        ("open_store = 7", "'open_store' is not callable in module 'their_store'"),
        ("def open_store(): ...", "the factory raised TypeError: open_store() takes 0 positional"),
        ("def open_store(settings): raise OSError('mysql://u:p@db')", "the factory raised OSError"),
        (
            "async def open_store(settings): ...",
            "the factory returned coroutine, not an async context manager",
        ),
        (
            GOOD.replace("yield MemoryBackend", "yield repr; MemoryBackend"),
            "is not a delayed store: it has no",
        ),
    ],
)
async def test_a_store_that_cannot_be_made_is_told_in_one_line(module, text, complaint):
    endpoint = Endpoint("Unit.Tests", backend="memory", store=module(text))
    with pytest.raises(ConfigurationError) as caught:
        await endpoint.__aenter__()
    said = str(caught.value)
    assert said.startswith("POSTDATE_STORE=their_store:open_store: ")
    assert complaint in said
    assert "Password" not in said
    assert "mysql" not in said


async def test_an_error_of_ours_that_the_factory_raises_is_told_as_it_is(module):
    text = (
        "from postdate.errors import StorageUnreachable\n"
        "def open_store(settings): raise StorageUnreachable('the database does not answer')\n"
    )
    with pytest.raises(StorageUnreachable, match="the database does not answer"):
        await Endpoint("Unit.Tests", backend="memory", store=module(text)).__aenter__()


async def test_an_object_that_is_no_store_is_refused_with_what_it_lacks():
    class Half:
        def create(self): ...

        def add(self): ...

    with pytest.raises(
        ConfigurationError, match="store: Half is not a delayed store: it has no due, get, next_due"
    ):
        await Endpoint("Unit.Tests", backend="memory", store=Half()).__aenter__()


@pytest.mark.parametrize(
    "reference", ["open_store", "a.b", "a:b:c", ":f", "m:", "a/b.py:f", "a b:c", "m:f()"]
)
def test_a_reference_that_is_none_is_refused_when_settings_are_read(reference):
    with pytest.raises(ConfigurationError, match="store: must be module:factory, like shop"):
        load_settings(endpoint="X", store=reference)


def test_a_secret_in_the_wrong_setting_is_not_shown():
    with pytest.raises(ConfigurationError) as caught:
        load_settings(endpoint="X", store="AccountKey=abc")
    assert "abc" not in str(caught.value)


def test_a_complete_settings_object_and_the_setting_are_one_too_many():
    with pytest.raises(ConfigurationError, match="not both"):
        Endpoint(load_settings(endpoint="X"), store="m:f")
