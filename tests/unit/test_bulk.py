"""Scheduling many: in chunks, an outcome for each message, and what is left when something fails."""

import asyncio
import itertools
import pickle
from contextlib import aclosing
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate import Outgoing, StorageError
from postdate.engine import read_ahead
from postdate.engine.read_ahead import CHUNK_BYTES, CHUNK_MESSAGES
from postdate.errors import (
    DestinationNotFound,
    InvalidDueTime,
    MessageTooLarge,
    OutcomeUnknown,
    SchedulingInterrupted,
    ServiceBusy,
    StorageUnreachable,
    UsageError,
)
from postdate.events import Throttled
from postdate.ports import AddResult, all_added
from postdate.testing.clock import settle


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of ten."""
    monkeypatch.setattr(read_ahead, "CHUNK_MESSAGES", 10)


def named(count, *, delay=3600, destination="orders"):
    return (Outgoing(destination, n, delay=delay + n, message_id=f"m{n}") for n in range(count))


class Tap:
    """Counts the calls of a port's method, and can hold or fail them."""

    def __init__(self, port, name):
        self.calls = []
        self.fail = lambda call, arguments: None
        self.now = self.most = 0
        self.open = asyncio.Event()
        self.open.set()
        self._inner = getattr(port, name)
        setattr(port, name, self._call)

    async def _call(self, *args, **kwargs):
        self.calls.append(args)
        number = len(self.calls)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            await self.open.wait()
            error = self.fail(number, args)
            if error is not None:
                raise error
            return await self._inner(*args, **kwargs)
        finally:
            self.now -= 1


async def collect(stream, told):
    """Keep what is told, also of a stream that ends in an error."""
    async for outcome in stream:
        told.append(outcome)


async def test_each_message_has_its_outcome_in_the_order_given(small_chunks):
    messages = list(named(35))
    messages[3] = Outgoing("orders", "x", delay="soon")
    messages[17] = Outgoing("order", "x", delay=60)
    messages[20] = Outgoing("orders", "now", delay=0)
    messages[34] = ("orders", "x", 60)
    async with open_world() as world:
        outcomes = [outcome async for outcome in world.endpoint.schedule_each(messages)]
        assert [outcome.index for outcome in outcomes] == list(range(35))
        assert {o.index: type(o.error) for o in outcomes if o.handle is None} == {
            3: InvalidDueTime,
            17: DestinationNotFound,
            34: UsageError,
        }
        assert "tuple" in str(outcomes[34].error)
        assert len(world.rows) == 31
        assert len(world.in_queue("orders")) == 1
        found = await world.endpoint.get(outcomes[16].handle)
        assert found.message_id == "m16"


async def test_reading_goes_on_while_a_chunk_is_stored_and_never_more_than_one_ahead():
    read = 0

    def endless():
        nonlocal read
        for read in itertools.count(1):
            yield Outgoing("orders", read, delay=3600)

    async with open_world() as world:
        adds = Tap(world.backend.store, "add")
        adds.open.clear()
        async with aclosing(world.endpoint.schedule_each(endless())) as stream:
            first = asyncio.ensure_future(anext(stream))
            await settle()
            assert [len(batch) for (batch,) in adds.calls] == [CHUNK_MESSAGES]
            assert read == 2 * CHUNK_MESSAGES
            adds.open.set()
            assert (await first).index == 0
            # Nothing more is stored than is asked for.
            await settle()
            assert len(adds.calls) == 1
            assert read == 2 * CHUNK_MESSAGES
        assert len(world.rows) == CHUNK_MESSAGES


@pytest.mark.parametrize("size", [30_000, 300_000])
async def test_a_chunk_is_bounded_by_bytes_too(size):
    async with open_world() as world:
        adds = Tap(world.backend.store, "add")
        count = 2 * CHUNK_BYTES // size + 1
        result = await world.endpoint.schedule_many(
            Outgoing("orders", b"x" * size, delay=3600) for _ in range(count)
        )
        assert result.failures == {}
        per_chunk = [len(batch) for (batch,) in adds.calls]
        assert sum(per_chunk) == count
        assert len(per_chunk) == 3 or sum(per_chunk[:2]) == count
        assert max(per_chunk) * size <= CHUNK_BYTES + size


async def test_messages_that_come_slowly_are_stored_after_a_second():
    more = asyncio.Event()

    async def slowly():
        yield Outgoing("orders", 1, delay=3600)
        await more.wait()
        yield Outgoing("orders", 2, delay=3600)

    async with open_world() as world:
        stream = world.endpoint.schedule_each(slowly())
        first = asyncio.ensure_future(anext(stream))
        await world.clock.advance(0.9)
        assert not first.done()
        await world.clock.advance(0.2)
        assert (await first).handle is not None
        assert len(world.rows) == 1
        more.set()
        assert [outcome.index async for outcome in stream] == [1]


async def test_a_source_that_raises_keeps_what_it_gave_before(small_chunks):
    def broken():
        yield from named(13)
        raise LookupError("no more")

    async with open_world() as world:
        told = []
        with pytest.raises(LookupError, match="no more"):
            await collect(world.endpoint.schedule_each(broken()), told)
        assert len(told) == len(world.rows) == 13
        with pytest.raises(LookupError, match="no more"):
            await world.endpoint.schedule_many(broken())


async def test_a_caller_that_is_cancelled_leaves_nothing_running(small_chunks):
    async with open_world() as world:
        adds = Tap(world.backend.store, "add")
        adds.open.clear()
        before = asyncio.all_tasks()
        call = asyncio.create_task(world.endpoint.schedule_many(named(100)))
        await settle()
        assert adds.calls
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert asyncio.all_tasks() == before
        assert world.rows == {}


# Destinations


async def test_a_destination_is_asked_for_once_however_many_messages_it_gets():
    async with open_world() as world:
        asked = Tap(world.backend.sender, "exists")
        result = await world.endpoint.schedule_many(named(200))
        assert not result.failures
        assert len(asked.calls) == 1


async def test_missing_destinations_are_asked_for_once_each_and_side_by_side():
    async with open_world() as world:
        asked, names = Tap(world.backend.sender, "exists"), Tap(world.backend.sender, "names")
        messages = [Outgoing(f"order-{n % 40}", n, delay=60) for n in range(400)]
        result = await world.endpoint.schedule_many(messages)
        assert sorted(result.failures) == list(range(400))
        assert result.failures[7].near == ("orders",)
        assert len(asked.calls) == 40
        assert asked.most == 16
        assert len(names.calls) == 1


async def test_callers_that_want_to_know_at_once_share_the_answer():
    async with open_world() as world:
        asked = Tap(world.backend.sender, "exists")
        await asyncio.gather(*(world.endpoint.schedule("orders", n, delay=60) for n in range(9)))
        assert len(asked.calls) == 1


# Short delays


async def test_short_delays_are_sent_side_by_side_and_soonest_first():
    async with open_world(send_concurrency=8) as world:
        sends = Tap(world.backend.sender, "send")
        messages = [Outgoing("orders", n, delay=29 - n) for n in range(24)]
        result = await world.endpoint.schedule_many(messages)
        assert all(result.handles)
        assert sends.most == 8
        hidden = [message.visible_at for message in world.in_queue("orders")]
        assert len(hidden) == 24
        assert next(iter(world.account.queues["orders"].messages.values())).visible_at == min(hidden)


async def test_the_same_short_delay_twice_among_many_is_one_message():
    async with open_world() as world:
        Tap(world.backend.store, "get")  # which gives the others a turn, as a service does
        at = world.clock.now() + timedelta(seconds=5)
        result = await world.endpoint.schedule_many(
            Outgoing("orders", "x", at=at, message_id="id-1") for _ in range(10)
        )
        assert len(set(result.handles)) == 1
        assert len(world.in_queue("orders")) == 1


async def test_a_busy_queue_is_tried_again_and_asked_more_gently():
    async with open_world() as world:
        sends = Tap(world.backend.sender, "send")
        sends.fail = lambda call, _: ServiceBusy("503") if call <= 20 else None
        call = asyncio.create_task(world.endpoint.schedule_many(named(40, delay=-50)))
        await world.clock.advance(10)
        result = await call
        assert all(result.handles)
        assert len(world.in_queue("orders")) == 40
        assert world.log.of(Throttled)


async def test_a_queue_that_stays_busy_interrupts_and_the_rest_is_not_tried():
    async with open_world() as world:
        sends = Tap(world.backend.sender, "send")
        sends.fail = lambda *_: ServiceBusy("503 ServerBusy")
        call = asyncio.create_task(world.endpoint.schedule_many(named(500, delay=-1000)))
        await world.clock.advance(60)
        with pytest.raises(SchedulingInterrupted, match="503 ServerBusy") as caught:
            await call
        assert caught.value.index == 0
        assert len(caught.value.failures) == 500
        assert len(sends.calls) < 500


# Failures of the service


async def test_an_interruption_tells_what_is_durable_and_where_to_go_on(small_chunks):
    async with open_world() as world:
        adds = Tap(world.backend.store, "add")
        adds.fail = lambda call, _: StorageUnreachable("no answer") if call == 3 else None
        messages = [*named(45)]
        messages[4] = Outgoing("Orders", "x", delay=60)
        with pytest.raises(SchedulingInterrupted, match="message 20: no answer") as caught:
            await world.endpoint.schedule_many(messages)
        error = caught.value
        assert isinstance(error.__cause__, StorageUnreachable)
        assert error.index == 20
        assert [n for n, handle in enumerate(error.handles) if handle is None] == [4, *range(20, 30)]
        assert isinstance(error.failures[4], UsageError)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (again.index, again.handles, list(again.failures)) == (20, error.handles, list(error.failures))
        assert all(isinstance(error.failures[n], StorageUnreachable) for n in range(20, 30))
        assert len(world.rows) == 19
        rest = await world.endpoint.schedule_many(messages[error.index :])
        assert not rest.failures
        assert len(world.rows) == 44


async def test_a_lost_answer_is_no_loss_and_a_repeat_no_second_row(small_chunks):
    async with open_world() as world:
        store = world.backend.store
        inner = store.add

        async def applied_and_lost(messages):
            await inner(messages)
            raise OutcomeUnknown("may or may not")

        store.add = applied_and_lost
        messages = [Outgoing("orders", n, delay=60, message_id=f"m{n}") for n in range(30)]
        with pytest.raises(SchedulingInterrupted) as caught:
            await world.endpoint.schedule_many(messages)
        assert caught.value.index == 0
        assert all(isinstance(error, OutcomeUnknown) for error in caught.value.failures.values())
        store.add = inner
        result = await world.endpoint.schedule_many(messages[caught.value.index :])
        assert all(result.handles)
        assert len(world.rows) == 30


async def test_a_stream_tells_every_outcome_before_it_is_interrupted(small_chunks):
    async with open_world() as world:
        adds = Tap(world.backend.store, "add")
        adds.fail = lambda call, _: ServiceBusy("503") if call == 2 else None
        told = []
        with pytest.raises(SchedulingInterrupted) as caught:
            await collect(world.endpoint.schedule_each(named(100)), told)
        assert [o.index for o in told] == list(range(20))
        assert [o.index for o in told if o.handle] == list(range(10)) == list(range(caught.value.index))
        assert len(adds.calls) == 2


async def test_a_service_that_does_not_tell_its_time_interrupts_at_once(small_chunks):
    async with open_world() as world:
        world.clock.__class__ = type("Unknowing", (type(world.clock),), {"uncertainty": None})
        asked = Tap(world.backend.store, "next_due")
        asked.fail = lambda *_: StorageUnreachable("no answer")
        with pytest.raises(SchedulingInterrupted, match="message 0") as caught:
            await world.endpoint.schedule_many(named(100))
        assert caught.value.handles == [None]
        assert len(asked.calls) == 1


async def test_a_row_that_the_service_refuses_is_told_by_its_index(small_chunks):
    async with open_world() as world:
        store = world.backend.store
        inner = store.add

        async def refuse_m7(messages):
            kept = iter(await inner([m for m in messages if m.message.message_id != "m7"]))
            return all_added(
                [MessageTooLarge("413") if m.message.message_id == "m7" else next(kept) for m in messages]
            )

        store.add = refuse_m7
        result = await world.endpoint.schedule_many(named(25))
        assert list(result.failures) == [7]
        assert isinstance(result.failures[7], MessageTooLarge)
        assert len(world.rows) == sum(handle is not None for handle in result.handles) == 24


async def test_of_a_chunk_that_failed_in_part_the_stored_part_has_handles():
    async with open_world() as world:
        inner = world.backend.store.add

        async def halfway(messages):
            stored = await inner(messages[:6])
            return all_added([*stored, None, None, StorageUnreachable("no answer")])

        world.backend.store.add = halfway
        with pytest.raises(SchedulingInterrupted, match="message 6: no answer") as caught:
            await world.endpoint.schedule_many(named(9))
        assert caught.value.index == 6
        assert isinstance(caught.value.__cause__, StorageUnreachable)
        assert [handle is not None for handle in caught.value.handles] == [True] * 6 + [False] * 3
        assert "not tried" in str(caught.value.failures[7])
        assert type(caught.value.failures[7]) is StorageError


async def test_a_large_body_that_could_not_be_parked_keeps_no_other_out():
    async with open_world() as world:
        puts = Tap(world.backend.payloads, "put")
        puts.fail = lambda call, _: ServiceBusy("503") if call == 3 else None
        messages = [Outgoing("orders", b"x" * 100_000, delay=3600 + n) for n in range(20)]
        with pytest.raises(SchedulingInterrupted) as caught:
            await world.endpoint.schedule_many(messages)
        assert list(caught.value.failures) == [2]
        assert puts.most == 8
        assert len(world.rows) == 19


# Progress


async def test_progress_is_told_after_each_chunk(small_chunks):
    told = []
    async with open_world() as world:
        messages = [*named(25)]
        messages[11] = Outgoing("orders", "x", delay="soon")
        await world.endpoint.schedule_many(messages, progress=told.append)
    assert [(p.accepted, p.refused) for p in told] == [(10, 0), (19, 1), (24, 1)]
    assert all(p.seconds >= 0 for p in told)


async def test_a_broken_progress_callback_is_logged_and_loses_nothing(small_chunks, caplog):
    def broken(_):
        raise ZeroDivisionError

    async with open_world() as world:
        result = await world.endpoint.schedule_many(named(25), progress=broken)
        assert all(result.handles)
        assert len(world.rows) == 25
    assert "progress callback" in caplog.text


async def test_what_was_stored_wakes_the_leader_for_the_earliest():
    async with open_world(lookahead=0) as world:
        stop = asyncio.Event()
        leading = asyncio.create_task(world.endpoint.run(stop))
        await world.clock.advance(30)
        await world.endpoint.schedule_many(Outgoing("orders", n, delay=3 - n) for n in range(3))
        await world.clock.advance(1.5)
        assert len(await world.take("orders")) == 1
        stop.set()
        await world.clock.advance(5)
        await leading


def test_a_result_for_every_message_or_an_error():
    with pytest.raises(StorageError, match="503"):
        all_added([AddResult(None, "e", created=True), MessageTooLarge("413"), ServiceBusy("503")])
