"""What a consumer sends and records with an inbox happens once, whoever else has the message."""

import asyncio
from datetime import datetime

import pytest
from inbox_cases import CLAIM, DAY, SECOND, bill, consume, inbox_of, once_of, open_processes

from postdate.errors import (
    ClaimLost,
    DelayedDeliveryDisabled,
    DestinationNotFound,
    MessageTooLarge,
    ServiceBusy,
    StorageError,
    TryLater,
    UsageError,
)
from postdate.events import InboxCallFailed, InboxClaimLost, InboxRepeat
from postdate.inbox import Inbox
from postdate.model import headers as h


async def refuse(*_args, **_options):
    raise ServiceBusy("503")


async def deliver_twice(world):
    """One message, two copies: the same id, the same headers, other queue messages."""
    await world.endpoint.send("orders", {"order": 7}, message_id="order-7")
    (stored,) = world.in_queue("orders")
    await world.backend.sender.send("orders", stored.text)


async def test_a_message_that_comes_twice_has_its_effects_once():
    async with open_processes(1) as (world,):
        await deliver_twice(world)
        assert await consume(world, inbox_of(world), bill) == 1
        (invoice,) = await world.take("invoices")
        assert invoice.body == b'{"order":"order-7","attempt":1}'
        assert world.log.of(InboxRepeat) == [InboxRepeat("billing", "order-7", 0)]
        assert world.in_queue("orders") == []


async def test_two_consumers_of_one_message_each_have_their_effects():
    async with open_processes(1) as (world,):
        for consumer in ("billing", "shipping"):
            async with once_of(world, consumer=consumer) as once:
                assert once.fresh
                once.send("invoices", consumer)
        invoices = await world.take("invoices")
        assert [m.body for m in invoices] == [b"billing", b"shipping"]
        assert invoices[0].message_id != invoices[1].message_id


async def test_of_two_that_have_a_message_at_once_one_works_and_the_other_hears_when_to_come_back():
    async with open_processes(2) as (one, two):
        async with once_of(one) as once:
            once.send("invoices", "one")
            with pytest.raises(TryLater, match="'billing' is working on message 'order-7'") as busy:
                await once_of(two).__aenter__()
            assert busy.value.delay == CLAIM
        async with once_of(two) as again:
            assert not again.fresh
            assert again.attempt == 0
        assert [m.body for m in await one.take("invoices")] == [b"one"]


async def test_a_handler_that_fails_has_sent_and_recorded_nothing_and_the_next_attempt_is_told_its_number():
    async with open_processes(1) as (world,):
        ids = []
        for attempt in (1, 2, 3):
            once = await once_of(world).__aenter__()
            assert once.attempt == attempt
            ids.append(once.send("invoices", "x"))
            once.upsert("bill", 1)
            await once.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert world.in_queue("invoices") == []
        assert await inbox_of(world).recorded("order-7", at=world.clock.now()) == {}
        assert len(set(ids)) == 1  # made of the message's id


async def test_a_handler_that_is_cancelled_gives_its_claim_back():
    async with open_processes(2) as (one, two):
        entered = asyncio.Event()

        async def handle():
            async with once_of(one) as once:
                once.send("invoices", "x")
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(handle())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with once_of(two) as once:
            assert once.attempt == 2
        assert one.in_queue("invoices") == []


async def test_a_claim_lasts_as_long_as_its_handler_works():
    async with open_processes(2) as (one, two):
        async with once_of(one) as once:
            once.send("invoices", "slow")
            for _ in range(10):
                await one.clock.advance(CLAIM * 0.9)
                with pytest.raises(TryLater):
                    await once_of(two).__aenter__()
            assert not once.lost
        assert len(one.in_queue("invoices")) == 1


async def test_a_claim_is_not_prolonged_after_its_block():
    async with open_processes(1) as (world,):
        async with once_of(world):
            pass
        with pytest.raises(ZeroDivisionError):
            async with once_of(world, "order-8"):
                _ = 1 / 0
        calls = []
        world.backend.inbox.prolong = calls.append
        await world.clock.advance(10 * CLAIM)
        assert calls == []


async def test_who_is_frozen_longer_than_his_claim_can_commit_nothing():
    async with open_processes(2) as (one, two):
        one.backend.inbox.prolong = refuse

        async def freeze():
            async with once_of(one) as late:
                late.send("invoices", "late")
                late.upsert("bill", "late")
                await one.clock.advance(CLAIM + 1)
                async with once_of(two) as once:
                    assert once.attempt == 2
                    once.send("invoices", "in time")
                    once.upsert("bill", "in time")

        with pytest.raises(ClaimLost, match="attempt 1 at message 'order-7'"):
            await freeze()
        assert [m.body for m in await one.take("invoices")] == [b"in time"]
        assert await inbox_of(one).recorded("order-7", at=one.clock.now()) == {"bill": "in time"}
        assert {event.doing for event in one.log.of(InboxCallFailed)} == {"prolonging a claim"}


async def test_losing_the_claim_is_told_as_soon_as_it_is_seen():
    async with open_processes(2) as (one, two):
        prolong = one.backend.inbox.prolong
        one.backend.inbox.prolong = refuse
        late = await once_of(one).__aenter__()
        await one.clock.advance(CLAIM + 1)
        async with once_of(two) as taken:
            one.backend.inbox.prolong = prolong
            assert not late.lost
            await one.clock.advance(CLAIM / 2)
            assert late.lost
            assert not taken.lost
        assert one.log.of(InboxClaimLost) == [InboxClaimLost("billing", "order-7", 1)]
        with pytest.raises(ClaimLost):
            await late.__aexit__(None, None, None)


async def test_messages_that_were_committed_and_not_dispatched_leave_with_the_next_delivery():
    async with open_processes(2) as (one, two):
        one.backend.sender.send = refuse
        with pytest.raises(StorageError):
            async with once_of(one) as once:
                sent = once.send("invoices", {"n": 1}, headers={"Tenant": "contoso"})
        assert one.in_queue("invoices") == []
        committed_at = one.clock.now()
        await one.clock.advance(3600)
        async with once_of(two) as again:
            assert not again.fresh
        (invoice,) = await two.take("invoices")
        assert (invoice.message_id, invoice.body) == (sent, b'{"n":1}')
        assert invoice.headers["Tenant"] == "contoso"
        assert invoice.headers[h.TIME_SENT] == h.format_instant(committed_at)
        assert invoice.headers[h.RELATED_TO] == "order-7"
        assert invoice.headers[h.CONTENT_TYPE] == "application/json"
        async with once_of(two):
            pass
        assert await two.take("invoices") == []  # settled
        assert [event.dispatched for event in two.log.of(InboxRepeat)] == [1, 0]


async def test_every_copy_of_a_message_is_the_same_one_for_a_consumer_downstream():
    """Also one that is dispatched after its due time, which a send would leave out by then."""
    async with open_processes(3) as (world, *others):
        for process in (world, *others):
            process.backend.inbox.settle = refuse
        async with once_of(world) as once:
            once.send("invoices", "now")
            once.schedule("invoices", "soon", delay=5, expires_after="1d")
            once.schedule("invoices", "long ago", at=world.clock.now() - DAY)
        at = world.clock.now()
        await world.clock.advance(3600)
        for process in others:
            async with inbox_of(process).once("order-7", at=at) as again:
                assert not again.fresh
        copies = world.opened("invoices")
        assert len(copies) == 9
        assert len({m.message_id for m in copies}) == 3
        assert len({(m.message_id, m.headers[h.TIME_SENT], m.headers.get(h.DELIVER_AT)) for m in copies}) == 3
        taken = []

        async def note(delivery, _once):
            taken.append(delivery.text)

        assert await consume(world, inbox_of(world, "shipping"), note, "invoices") == 3
        assert sorted(taken) == ["long ago", "now", "soon"]


async def test_a_schedule_goes_to_the_table_and_is_no_second_row_when_it_is_dispatched_again():
    async with open_processes(1) as (world,):
        world.backend.inbox.settle = refuse
        for _ in range(2):
            async with once_of(world) as once:
                if once.fresh:
                    once.schedule("invoices", "later", delay="3h")
        assert len(world.rows) == 1


async def test_what_is_too_large_for_a_row_is_kept_in_a_blob_until_it_is_dispatched():
    async with open_processes(1) as (world,):
        send = world.backend.sender.send
        world.backend.sender.send = refuse
        once = await once_of(world).__aenter__()
        for number in range(20):
            once.send("invoices", bytes([number]) * 20_000)
        with pytest.raises(StorageError):
            await once.__aexit__(None, None, None)
        kept = world.account.payloads[world.endpoint.settings.table_name]
        assert [name.startswith("inbox-") for name in kept] == [True]
        world.backend.sender.send = send
        async with once_of(world) as again:
            assert not again.fresh
        assert sorted(m.body for m in await world.take("invoices")) == [
            bytes([n]) * 20_000 for n in range(20)
        ]
        assert [body for body, _ in kept.values()] == [None]
        async with once_of(world):
            pass
        assert world.in_queue("invoices") == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda once: once.send("nowhere", "x"), DestinationNotFound),
        (lambda once: once.send("Not a queue", "x"), UsageError),
        (lambda once: once.send("invoices", object()), UsageError),
        (lambda once: once.send("invoices", "x", headers={"a": 1}), UsageError),
        (lambda once: once.send("invoices", "x", headers={"a": "x" * 40_000}), MessageTooLarge),
        (lambda once: once.send("invoices", "x", expires_after="soon"), UsageError),
        (lambda once: once.schedule("invoices", "x"), UsageError),
        (lambda once: once.schedule("invoices", "x", at=datetime(2026, 3, 1)), UsageError),
        (lambda once: once.upsert("no/name", 1), UsageError),
        (lambda once: once.upsert("bill", object()), UsageError),
        (lambda once: once.upsert("bill", "x" * 70_000), UsageError),
        (lambda once: [once.upsert(f"bill-{n}", 1) for n in range(51)], UsageError),
        (lambda once: [once.upsert(f"bill-{n}", "x" * 59_000) for n in range(5)], UsageError),
    ],
)
async def test_what_could_not_be_kept_or_dispatched_is_refused_and_nothing_of_the_block_is_kept(wrong, error):
    async with open_processes(1) as (world,):

        async def block():
            async with once_of(world) as once:
                once.send("invoices", "good")
                wrong(once)

        with pytest.raises(error):
            await block()
        assert world.in_queue("invoices") == []
        async with once_of(world) as once:
            assert once.fresh


async def test_without_delayed_delivery_nothing_can_be_scheduled():
    async with open_processes(1, disable_delayed_delivery=True) as (world,):
        with pytest.raises(DelayedDeliveryDisabled):
            async with once_of(world) as once:
                once.schedule("invoices", "x", delay=60)
        async with once_of(world) as once:
            once.send("invoices", "x")
        assert len(world.in_queue("invoices")) == 1


async def test_records_can_be_read_inside_later_and_from_elsewhere():
    async with open_processes(1) as (world,):
        async with once_of(world) as once:
            assert await once.get("bill") is None
            once.upsert("bill", {"total": 1})
            once.upsert("bill", {"total": 2})
            once.upsert("none", None)
            assert await once.get("bill") == {"total": 2}
        async with once_of(world) as again:
            assert await again.get("bill") == {"total": 2}
            assert await again.get("other") is None
        recorded = await inbox_of(world).recorded("order-7", at=world.clock.now())
        assert recorded == {"bill": {"total": 2}, "none": None}


async def test_effects_belong_into_the_block():
    async with open_processes(1) as (world,):
        once = once_of(world)
        with pytest.raises(UsageError, match="message 'order-7': send inside the block"):
            once.send("invoices", "x")
        async with once:
            pass
        with pytest.raises(UsageError, match="enter the block once"):
            await once.__aenter__()
        async with once_of(world) as done:
            with pytest.raises(UsageError, match="only if `fresh` is true"):
                done.upsert("bill", 1)


async def test_an_endpoint_whose_table_cannot_be_created_says_how():
    async with open_processes(1) as (world,):
        world.backend.inbox.create = refuse
        with pytest.raises(StorageError):
            await once_of(world).__aenter__()


async def test_setup_creates_the_table_only_when_asked():
    async with open_processes(1) as (world,):
        assert world.account.inboxes == {}
        name = world.endpoint.settings.inbox_table_name
        assert await world.endpoint.setup(inbox=True) == [f"table {name}"]
        assert list(world.account.inboxes) == [name]
        assert await world.endpoint.setup(inbox=True) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"consumer": "bill_ing"}, "consumer 'bill_ing' is not a name"),
        ({"consumer": ""}, "consumer '' is not a name"),
        ({"consumer": 7}, "consumer 7 is not a name"),
        ({"consumer": "b", "claim_for": 0.5}, "claim_for must be from 1s to 1d; it is 0.5s"),
        ({"consumer": "b", "claim_for": "soon"}, "claim_for 'soon' is not a duration"),
        ({"consumer": "b", "retention": 0}, "retention must be more than zero; it is 0s"),
    ],
)
async def test_an_inbox_refuses_what_is_wrong(options, text):
    async with open_processes(1) as (world,):
        with pytest.raises(UsageError) as refused:
            Inbox(world.endpoint, **options)
        assert text in str(refused.value)


async def test_a_message_needs_an_id_and_an_aware_instant():
    async with open_processes(1) as (world,):
        inbox = inbox_of(world)
        for message_id in ("", None, 7, "\ud800"):
            with pytest.raises(UsageError, match="message_id"):
                inbox.once(message_id, at=world.clock.now())
        for at in (datetime(2026, 3, 1), "2026-03-01", None):
            with pytest.raises(UsageError, match=r"at .* is not an aware datetime"):
                inbox.once("order-7", at=at)


async def test_an_inbox_takes_an_open_endpoint_of_ours():
    async with open_processes(1) as (world,):
        endpoint = world.endpoint
    with pytest.raises(UsageError, match="not open"):
        Inbox(endpoint, consumer="billing").once("order-7", at=world.clock.now())
    with pytest.raises(UsageError, match=r"takes a postdate\.Endpoint"):
        Inbox("Contoso.Orders", consumer="billing")


async def test_the_retention_of_the_settings_is_the_default():
    async with open_processes(1, inbox_retention="3d") as (world,):
        assert inbox_of(world).retention == 3 * DAY
        assert inbox_of(world, retention=90).retention == 90 * SECOND
        assert inbox_of(world).consumer == "billing"
