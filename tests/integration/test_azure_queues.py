"""Queues while answers get lost and services are busy; what the service's defaults would do to us."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from azure.storage.queue.aio import QueueClient
from azure_cases import Rig, connection_of, rig_for

from postdate.errors import (
    AccessDenied,
    DestinationNotFound,
    InvalidDestination,
    MessageTooLarge,
    OutcomeUnknown,
    ServiceBusy,
    StorageUnreachable,
)
from postdate.ports import LeaseLost, Receipt, Received


@pytest.fixture
async def rig(postdate_settings) -> AsyncIterator[Rig]:
    async with rig_for(postdate_settings, provisioned=False) as made:
        await made.backend.sender.create(postdate_settings.own_queue)
        made.faults.calls.clear()
        yield made


@pytest.fixture
def queue(rig) -> str:
    return rig.settings.own_queue


@pytest.fixture
async def plain(rig, queue) -> AsyncIterator[QueueClient]:
    client = QueueClient.from_connection_string(connection_of(rig.settings), queue, api_version="2025-11-05")
    yield client
    await client.close()


async def received(rig, queue) -> list[Received]:
    return await rig.backend.receiver.receive(queue, count=32, visibility_s=30)


# Sending


@pytest.mark.parametrize("fault", ["lose_answer", "time_out"])
async def test_a_send_whose_answer_is_lost_is_unknown_and_never_doubled(rig, queue, fault):
    # fact 4: the SDK sends twice
    getattr(rig.faults.on("queue.send"), fault)()
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        await rig.backend.sender.send(queue, "once")
    assert rig.faults.count("queue.send") == 1
    assert [message.text for message in await received(rig, queue)] == ["once"]


async def test_a_service_that_timed_out_inside_may_have_sent_it(rig, queue):
    rig.faults.on("queue.send").respond(500, "OperationTimedOut")
    with pytest.raises(OutcomeUnknown, match="500 OperationTimedOut"):
        await rig.backend.sender.send(queue, "x")
    assert rig.faults.count("queue.send") == 1


@pytest.mark.parametrize(("status", "code"), [(503, "ServerBusy"), (429, "")])
async def test_a_busy_service_is_told_at_once_and_not_asked_again_in_here(rig, queue, status, code):
    # fact 3
    rig.faults.on("queue.send").respond(status, code)
    with pytest.raises(ServiceBusy, match=str(status)):
        await rig.backend.sender.send(queue, "x")
    assert rig.faults.count("queue.send") == 1


async def test_a_send_that_found_nobody_listening_surely_sent_nothing(rig, queue):
    rig.faults.on("queue.send").refuse_connection()
    with pytest.raises(StorageUnreachable, match="postdate azurite"):
        await rig.backend.sender.send(queue, "x")


async def test_the_guard_is_asked_before_the_connection_and_on_it(rig, queue):
    # fact 18
    answers = [True, False]
    with pytest.raises(LeaseLost):
        await rig.backend.sender.send(queue, "x", guard=lambda: answers.pop(0))
    assert answers == []
    assert await received(rig, queue) == []


async def test_a_guard_is_only_asked_by_its_own_call(rig, queue):
    asked = []
    await rig.backend.sender.send(queue, "x", guard=lambda: not asked.append("send"))
    assert asked == ["send", "send"]
    await rig.backend.sender.send(queue, "y")
    assert asked == ["send", "send"]


async def test_a_message_never_expires_unless_asked_to(rig, queue, plain):
    # fact 7: the default of 7 days is as long as the longest hiding
    await rig.backend.sender.send(queue, "x")
    await rig.backend.sender.send(queue, "y", time_to_live=60)
    never, soon = await plain.peek_messages(max_messages=2)
    assert never.expires_on.year == 9999
    assert soon.expires_on - soon.inserted_on == timedelta(seconds=60)


async def test_the_longest_hiding_is_taken(rig, queue):
    # fact 7
    receipt = await rig.backend.sender.send(queue, "x", hidden_for=604_800)
    assert await rig.backend.sender.withdraw(queue, receipt) is True


async def test_a_text_that_is_too_large_is_refused_as_such(rig, queue):
    with pytest.raises(MessageTooLarge, match="413"):
        await rig.backend.sender.send(queue, "x" * 65_537)
    await rig.backend.sender.send(queue, "<" * 65_536)


# Withdrawing


async def test_a_withdrawal_whose_answer_is_lost_is_unknown(rig, queue):
    receipt = await rig.backend.sender.send(queue, "x", hidden_for=600)
    rig.faults.on("queue.delete_message").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.sender.withdraw(queue, receipt)
    assert await rig.backend.sender.withdraw(queue, receipt) is None


async def test_no_layer_below_repeats_a_withdrawal(rig, queue):
    # aiohttp repeats a DELETE on a broken connection by itself, where the SDK sees nothing of it
    receipt = await rig.backend.sender.send(queue, "x", hidden_for=600)
    rig.faults.on("queue.delete_message").break_connection()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.sender.withdraw(queue, receipt)
    assert rig.faults.stand_in_requests == 1
    assert await rig.backend.sender.withdraw(queue, receipt) is True


async def test_hiding_again_whose_answer_is_lost_is_unknown(rig, queue):
    receipt = await rig.backend.sender.send(queue, "x", hidden_for=600)
    rig.faults.on("queue.update_message").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.sender.hide_again(queue, receipt, 60)
    assert rig.faults.count("queue.update_message") == 1


async def test_hiding_again_keeps_the_text_and_the_hiding(rig, queue):
    # fact 8: without an explicit visibility it would be visible now
    receipt = await rig.backend.sender.send(queue, "kept", hidden_for=600)
    again = await rig.backend.sender.hide_again(queue, receipt, 500)
    assert isinstance(again, Receipt)
    assert await received(rig, queue) == []
    await rig.backend.sender.hide_again(queue, again, 0)
    assert [message.text for message in await received(rig, queue)] == ["kept"]


# Receiving


async def test_one_receive_is_one_request(rig, queue):
    # fact 9: by default it would be one for each message
    for n in range(5):
        await rig.backend.sender.send(queue, str(n))
    assert len(await received(rig, queue)) == 5
    assert rig.faults.count("queue.receive") == 1
    assert await received(rig, queue) == []
    assert rig.faults.count("queue.receive") == 2


async def test_a_message_that_nobody_can_decode_does_not_fail_the_page(rig, queue):
    for text in ("aGVsbG8=", "not base64 at all!", "", "ÿ"):
        await rig.backend.sender.send(queue, text)
    texts = [message.text for message in await received(rig, queue)]
    assert texts == ["aGVsbG8=", "not base64 at all!", "", "ÿ"]


async def test_an_ack_whose_answer_is_lost_is_repeated_and_true(rig, queue):
    await rig.backend.sender.send(queue, "x")
    (message,) = await received(rig, queue)
    rig.faults.on("queue.delete_message").lose_answer()
    assert await rig.backend.receiver.ack(message) is True
    assert await rig.backend.sender.approximate_count(queue) == 0


async def test_an_ack_while_the_service_is_busy_is_told(rig, queue):
    await rig.backend.sender.send(queue, "x")
    (message,) = await received(rig, queue)
    rig.faults.on("queue.delete_message").respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await rig.backend.receiver.ack(message)
    assert await rig.backend.receiver.ack(message) is True


async def test_a_receive_without_an_answer_leaves_nothing_unknown(rig, queue):
    rig.faults.on("queue.receive", times=9).break_connection()
    with pytest.raises(StorageUnreachable):
        await received(rig, queue)


# Queues that are not, or not any more, or elsewhere


async def test_a_queue_being_deleted_neither_exists_nor_is_created(rig, queue):
    # fact 11, for queues: the SDK calls this "exists" too
    rig.faults.on("queue.create").respond(409, "QueueBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s"):
        await rig.backend.sender.create(queue)
    rig.faults.on("queue.send").respond(409, "QueueBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s"):
        await rig.backend.sender.send(queue, "x")


async def test_a_missing_queue_is_told_by_name_for_every_use(rig):
    for call in (
        rig.backend.sender.approximate_count("not-there"),
        rig.backend.sender.withdraw("not-there", Receipt("3f0d7f3e-6a1c-4f0b-9a55-0c6a1f2b3d4e", "AgAAAA==")),
        rig.backend.receiver.receive("not-there", count=1, visibility_s=1),
    ):
        with pytest.raises(DestinationNotFound, match="not-there"):
            await call


async def test_a_missing_role_is_told_with_its_place(rig, queue):
    # fact 20
    rig.faults.on("queue.delete_message").respond(403, "AuthorizationPermissionMismatch")
    with pytest.raises(AccessDenied, match="devstoreaccount1"):
        await rig.backend.sender.withdraw(queue, Receipt("3f0d7f3e-6a1c-4f0b-9a55-0c6a1f2b3d4e", "A"))


async def test_an_unknown_alias_names_those_that_are_known(rig, postdate_settings):
    with pytest.raises(InvalidDestination, match="registered: none"):
        await rig.backend.sender.send("orders@elsewhere", "x")
