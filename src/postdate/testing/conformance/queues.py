"""QueueSender and QueueReceiver: hidden until then, withdrawn while hidden, never doubled in here."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from postdate.errors import DestinationNotFound, InvalidDestination, MessageTooLarge, StorageError
from postdate.ports import LeaseLost, QueueReceiver, QueueSender, Receipt, Received


@dataclass(frozen=True)
class QueueHarness:
    """Queues under test."""

    sender: QueueSender
    receiver: QueueReceiver
    #: An existing, empty queue.
    queue: str
    #: A valid name of a queue that does not exist.
    absent: str
    #: Lets so many seconds pass for the queues (real or virtual).
    pass_time: Callable[[float], Awaitable[None]]
    #: Whether a message can be hidden past its expiry: an emulator lets that pass, the service does not.
    hides_past_expiry: bool = False


async def _receive(harness: QueueHarness, count: int = 32, visibility_s: int = 30) -> list[Received]:
    return await harness.receiver.receive(harness.queue, count=count, visibility_s=visibility_s)


class QueueConformance:
    """What queues must do."""

    @pytest.fixture
    async def harness(self) -> QueueHarness:
        """Provide the queues; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_a_message_comes_out_as_it_went_in(self, harness: QueueHarness) -> None:
        text = "eyJ4IjoxfQ== <&> Größe \U0001f69a"
        receipt = await harness.sender.send(harness.queue, text)
        (received,) = await _receive(harness)
        assert (received.text, received.native_id) == (text, receipt.native_id)
        assert received.dequeue_count == 1
        assert received.queue == harness.queue

    async def test_a_hidden_message_appears_when_its_time_has_come(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "later", hidden_for=2)
        assert await _receive(harness) == []
        await harness.pass_time(2.1)
        (received,) = await _receive(harness)
        assert received.text == "later"

    async def test_a_hidden_message_can_be_withdrawn_once(self, harness: QueueHarness) -> None:
        receipt = await harness.sender.send(harness.queue, "x", hidden_for=600)
        assert await harness.sender.withdraw(harness.queue, receipt) is True
        assert await harness.sender.withdraw(harness.queue, receipt) is None

    async def test_of_two_withdrawals_one_wins(self, harness: QueueHarness) -> None:
        receipt = await harness.sender.send(harness.queue, "x", hidden_for=600)
        answers = await asyncio.gather(*(harness.sender.withdraw(harness.queue, receipt) for _ in range(2)))
        assert sorted(answers, key=str) == [None, True]

    async def test_a_message_that_was_received_is_too_late_to_withdraw(self, harness: QueueHarness) -> None:
        receipt = await harness.sender.send(harness.queue, "x")
        await _receive(harness)
        assert await harness.sender.withdraw(harness.queue, receipt) is False
        assert await harness.sender.hide_again(harness.queue, receipt, 60) is False

    async def test_hiding_again_changes_when_it_appears_and_the_receipt(self, harness: QueueHarness) -> None:
        old = await harness.sender.send(harness.queue, "x", hidden_for=600)
        new = await harness.sender.hide_again(harness.queue, old, 0)
        assert isinstance(new, Receipt)
        assert await harness.sender.withdraw(harness.queue, old) is False
        (received,) = await _receive(harness)
        assert received.text == "x"
        unknown = Receipt("3f0d7f3e-6a1c-4f0b-9a55-0c6a1f2b3d4e", new.pop_receipt)
        assert await harness.sender.hide_again(harness.queue, unknown, 5) is None

    async def test_ack_deletes_and_a_stale_ack_does_not(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x")
        (first,) = await _receive(harness, visibility_s=1)
        await harness.pass_time(1.1)
        (second,) = await _receive(harness)
        assert second.dequeue_count == 2
        assert await harness.receiver.ack(first) is False
        assert await harness.receiver.ack(second) is True
        assert await harness.receiver.ack(second) is False

    async def test_nack_makes_it_visible_now_or_later(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x")
        (first,) = await _receive(harness)
        assert await harness.receiver.nack(first) is True
        (second,) = await _receive(harness)
        assert await harness.receiver.nack(second, 2) is True
        assert await harness.receiver.nack(second) is False
        assert await _receive(harness) == []
        await harness.pass_time(2.1)
        assert len(await _receive(harness)) == 1

    async def test_nack_can_change_the_text_with_the_visibility(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x")
        (first,) = await _receive(harness, visibility_s=1)
        await harness.pass_time(1.1)
        (second,) = await _receive(harness)
        assert await harness.receiver.nack(first, 0, text="too late") is False
        assert await harness.receiver.nack(second, 1, text="<ä & 🚚>") is True
        assert await _receive(harness) == []
        await harness.pass_time(1.2)
        (third,) = await _receive(harness)
        assert (third.text, third.dequeue_count, third.native_id) == ("<ä & 🚚>", 3, first.native_id)
        with pytest.raises(MessageTooLarge):
            await harness.receiver.nack(third, 0, text="x" * 65_537)
        assert await harness.receiver.ack(third) is True

    async def test_extend_keeps_it_hidden_under_a_new_receipt(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x")
        (first,) = await _receive(harness, visibility_s=1)
        again = await harness.receiver.extend(first, 30)
        assert again is not None
        await harness.pass_time(1.2)
        assert await _receive(harness) == []
        assert await harness.receiver.extend(first, 30) is None
        assert await harness.receiver.ack(again) is True

    async def test_one_receive_gives_at_most_what_was_asked(self, harness: QueueHarness) -> None:
        for n in range(5):
            await harness.sender.send(harness.queue, f"{n}")
        assert [r.text for r in await _receive(harness, count=3)] == ["0", "1", "2"]
        assert await harness.sender.approximate_count(harness.queue) == 5

    async def test_a_message_past_its_time_to_live_is_gone(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x", hidden_for=1, time_to_live=2)
        await harness.sender.send(harness.queue, "stays", hidden_for=1)
        await harness.pass_time(2.2)
        assert [r.text for r in await _receive(harness)] == ["stays"]

    async def test_a_received_message_tells_when_it_expires(self, harness: QueueHarness) -> None:
        for time_to_live in (600, None):
            await harness.sender.send(harness.queue, "x", time_to_live=time_to_live)
        mortal, immortal = await _receive(harness)
        assert mortal.expires_on is not None
        assert abs((mortal.expires_on - mortal.inserted_at).total_seconds() - 600) <= 1
        assert immortal.expires_on is None

    async def test_hiding_past_the_expiry_is_refused_and_changes_nothing(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x", time_to_live=60)
        (received,) = await _receive(harness, visibility_s=90)  # a receive may: it takes whatever is there
        if harness.hides_past_expiry:
            assert await harness.receiver.nack(received, 90) is True
            return
        with pytest.raises(StorageError):
            await harness.receiver.nack(received, 90, text="other")
        with pytest.raises(StorageError):
            await harness.receiver.extend(received, 90)
        assert await harness.receiver.nack(received) is True
        (again,) = await _receive(harness)
        assert (again.text, again.dequeue_count) == ("x", 2)

    async def test_what_expired_in_hand_is_gone_for_every_call(self, harness: QueueHarness) -> None:
        await harness.sender.send(harness.queue, "x", time_to_live=2)
        (received,) = await _receive(harness)
        await harness.pass_time(3.1)
        assert await harness.receiver.extend(received, 30) is None
        assert await harness.receiver.nack(received) is False
        assert await harness.receiver.ack(received) is False
        assert await harness.sender.approximate_count(harness.queue) == 0

    async def test_a_missing_queue_is_told_by_every_call(self, harness: QueueHarness) -> None:
        assert await harness.sender.exists(harness.absent) is False
        with pytest.raises(DestinationNotFound, match=harness.absent):
            await harness.sender.send(harness.absent, "x")
        with pytest.raises(DestinationNotFound, match=harness.absent):
            await harness.receiver.receive(harness.absent, count=1, visibility_s=1)
        assert await harness.sender.delete(harness.absent) is False

    async def test_a_queue_that_appears_is_seen_at_once(self, harness: QueueHarness) -> None:
        with pytest.raises(DestinationNotFound):
            await harness.sender.send(harness.absent, "x")
        assert await harness.sender.create(harness.absent) is True
        assert await harness.sender.create(harness.absent) is False
        assert await harness.sender.exists(harness.absent) is True
        assert harness.absent in await harness.sender.names()
        await harness.sender.send(harness.absent, "x")
        assert await harness.sender.delete(harness.absent) is True
        assert harness.absent not in await harness.sender.names()

    async def test_an_unknown_alias_is_told(self, harness: QueueHarness) -> None:
        with pytest.raises(InvalidDestination, match="nobody"):
            await harness.sender.send(f"{harness.queue}@nobody", "x")

    async def test_a_guard_that_says_no_sends_nothing(self, harness: QueueHarness) -> None:
        with pytest.raises(LeaseLost):
            await harness.sender.send(harness.queue, "x", guard=lambda: False)
        assert await _receive(harness) == []
        await harness.sender.send(harness.queue, "y", guard=lambda: True)
        assert [r.text for r in await _receive(harness)] == ["y"]
