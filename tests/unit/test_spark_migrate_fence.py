"""A call that was overtaken, or frozen for too long, changes nothing more."""

import asyncio

import pytest

from postdate.backends.azure_storage import transport
from postdate.errors import StorageUnreachable, UsageError
from postdate.ports import LeaseLost
from postdate.spark.migrating.fence import TRUST_SECONDS, Fence


class Frozen:
    """A clock that only a test moves; whoever sleeps does not wake up, as in a process that is frozen."""

    def __init__(self):
        self.instant = 100.0

    def monotonic(self):
        return self.instant

    async def sleep(self, seconds):
        await asyncio.Event().wait()


class Documents:
    """Of a run in its first term."""

    run = "one"

    def __init__(self):
        self.current, self.failure, self.guards = 1, None, []

    async def term(self):
        self.guards.append(transport._call.get().guard())
        if self.failure is not None:
            raise self.failure
        return self.current


@pytest.fixture
def documents():
    return Documents()


@pytest.fixture
def clock():
    return Frozen()


@pytest.fixture
def fence(documents, clock):
    return Fence(documents, 1, clock)


async def test_nothing_may_be_done_before_the_term_is_asked_for(fence):
    assert not fence.may_act()
    await fence.check()
    assert fence.may_act()


async def test_an_answer_is_good_for_some_seconds_from_when_it_was_asked_for(fence, clock):
    await fence.check()
    clock.instant += TRUST_SECONDS - 0.01
    assert fence.may_act()
    clock.instant += 0.01
    assert not fence.may_act()
    await fence.check()
    assert fence.may_act()


async def test_a_later_term_ends_this_one_at_once(fence, documents):
    await fence.check()
    documents.current = 2
    with pytest.raises(UsageError, match="run 'one': another call works on it by now"):
        await fence.check()
    assert not fence.may_act()


async def test_without_an_answer_the_last_one_stays_good_for_its_time(fence, documents, clock):
    await fence.check()
    documents.failure = StorageUnreachable("no answer")
    with pytest.raises(StorageUnreachable):
        await fence.check()
    assert fence.may_act()
    clock.instant += TRUST_SECONDS
    assert not fence.may_act()


async def test_requests_inside_leave_only_while_the_term_stands_and_the_question_always(
    fence, documents, clock
):
    async with fence.held():
        transport._ask_guard()
        with transport.calling(once=True):
            transport._ask_guard()
        clock.instant += TRUST_SECONDS
        with pytest.raises(LeaseLost), transport.calling(once=True):
            transport._ask_guard()
        await fence.check()
        transport._ask_guard()
    assert documents.guards == [True, True]
    assert transport._call.get().guard is None


async def test_a_request_that_was_held_back_is_told_in_one_line(fence, clock):
    async def held_up():
        async with fence.held():
            clock.instant += TRUST_SECONDS
            transport._ask_guard()

    with pytest.raises(UsageError, match="held up for too long"):
        await held_up()
