"""The classic algorithm does what was described of it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from postdate.bench.classic import Classic, ClassicRow, due_filter, idle_polls_after
from postdate.bench.idle import FastClock
from postdate.bench.workload import classic_entity, classic_key
from postdate.errors import StorageError
from postdate.model.delayed import DelayedMessage
from postdate.model.keys import RowKey
from postdate.model.message import Message
from postdate.testing.clock import VirtualClock

DUE = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


class Storage:
    """Rows in memory, and everything that was asked."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = [ClassicRow(RowKey("p", f"{n:05d}"), "e", "q", Message(f"m{n}", {})) for n in range(rows)]
        self.asked: list[str] = []
        self.holds = True
        self.fails: set[str] = set()
        self.released = False

    async def lock(self) -> bool:
        self.asked.append("lock")
        return self.holds

    async def page(self, matching: str) -> list[ClassicRow]:
        self.asked.append("page")
        if "page" in self.fails:
            raise StorageError("a page that can't be read")
        return self.rows[:50]

    async def send(self, row: ClassicRow) -> None:
        self.asked.append("send")
        if row.message.message_id in self.fails:
            raise StorageError("a put that fails")

    async def delete(self, row: ClassicRow) -> None:
        self.asked.append("delete")
        self.rows.remove(row)

    async def release(self) -> None:
        self.released = True


async def idle_waits(polls: int) -> list[float]:
    classic = Classic(Storage(), VirtualClock())
    return [await classic.poll() for _ in range(polls)]


async def test_the_240th_idle_poll_is_the_first_to_sleep_30_seconds():
    waits = await idle_waits(242)
    assert waits[:3] == [0.125, 0.25, 0.375]
    assert [number for number, wait in enumerate(waits, 1) if wait >= 30.0] == [240, 241, 242]
    assert sum(waits[:239]) == 3585.0


async def test_an_iteration_is_lease_page_lease_and_then_all_of_the_page():
    storage = Storage(rows=2)
    assert await Classic(storage, VirtualClock()).poll() == 0.0
    assert storage.asked[:3] == ["lock", "page", "lock"]
    assert sorted(storage.asked[3:]) == ["delete", "delete", "send", "send"]


async def test_only_fifty_rows_at_a_time_and_no_sleep_between_pages():
    storage = Storage(rows=120)
    classic = Classic(storage, VirtualClock())
    assert [await classic.poll() for _ in range(4)] == [0.0, 0.0, 0.0, 0.125]
    assert classic.handed_over == 120
    assert storage.asked.count("page") == 4


async def test_work_ends_the_growth_of_sleeps():
    storage = Storage()
    classic = Classic(storage, VirtualClock(), idle_polls=100)
    assert await classic.poll() == 101 * 0.125
    storage.rows = Storage(rows=1).rows
    assert await classic.poll() == 0.0
    assert await classic.poll() == 0.125


async def test_a_lease_that_somebody_else_holds_and_a_page_that_fails_count_as_idle():
    storage = Storage(rows=1)
    classic = Classic(storage, VirtualClock())
    storage.holds = False
    assert await classic.poll() == 0.125
    assert storage.asked == ["lock"]
    storage.holds, storage.fails = True, {"page"}
    assert await classic.poll() == 0.25
    assert "page" in str(classic.failure)


async def test_a_row_whose_put_failed_stays_and_the_next_poll_comes_at_once():
    storage = Storage(rows=2)
    storage.fails = {"m0"}
    classic = Classic(storage, VirtualClock())
    assert await classic.poll() == 0.0
    assert [row.message.message_id for row in storage.rows] == ["m0"]
    assert classic.handed_over == 1


async def test_an_hour_without_messages_costs_three_requests_for_each_poll():
    storage, clock, stop = Storage(), VirtualClock(), asyncio.Event()
    running = asyncio.create_task(Classic(storage, clock).run(stop))
    await clock.advance(timedelta(hours=1))
    first_hour = len(storage.asked)
    await clock.advance(timedelta(hours=1))
    stop.set()
    await clock.advance(1)
    await running
    assert (first_hour, len(storage.asked) - first_hour) == (240 * 3, 120 * 3)
    assert storage.released


def test_the_filter_picks_a_row_only_when_its_second_is_over():
    key = classic_key(DUE)
    assert (key.partition, key.row[:15], len(key.row)) == ("2026030107", "20260301070809_", 47)
    assert due_filter(DUE) == "(PartitionKey le '2026030107') and (RowKey le '20260301070809')"
    assert not key.row <= "20260301070809"
    assert key.row <= "20260301070810"


def test_a_row_has_the_columns_of_the_dotnet_entity_and_no_other():
    message = Message("m1", {"Note": None}, b"{}")
    entity = classic_entity(DelayedMessage(message, "orders", DUE, DUE))
    assert set(entity) == {"PartitionKey", "RowKey", "Destination", "Body", "MessageId", "Headers"}


@pytest.mark.parametrize(("seconds", "polls"), [(0.0, 0), (0.125, 1), (0.5, 3), (3585.0, 239), (3600.0, 240)])
def test_how_many_idle_polls_a_quiet_time_makes(seconds, polls):
    assert idle_polls_after(seconds) == polls


async def test_a_fast_clock_sleeps_less_and_counts_more():
    clock = FastClock(1e6)
    began, at = clock.monotonic(), clock.now()
    await clock.sleep(60.0)
    assert clock.monotonic() - began >= 60.0
    assert (clock.now() - at).total_seconds() >= 60.0
