"""Leaders that die or freeze, and who takes over from them.

Most of their time these scenarios wait for a lease to end. So they run side by side, each with an endpoint of
its own, and each test judges what one of them recorded. The one that measures lateness begins alone.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from chaos_cases import CLOCK, SECOND, Copy, Server, duplicates, stage_for

from postdate.demo.processes import Told
from postdate.settings import Settings

ZERO = timedelta(0)
IDLE_SECONDS = 0.37
MESSAGES = 1000
FROZEN_SECONDS = 40.0
#: What a crash may cost: the lease, and one beat.
BEAT_SECONDS = 5.0
#: Hidden time is whole seconds, rounded up, and the service takes its time.
VISIBLE_WITHIN = 1.5
#: Until our consumer has it, which shares the machine with the other scenarios.
SEEN_WITHIN = 2.0


@dataclass
class Outcome:
    """What a scenario recorded."""

    settings: Settings
    due: dict[str, datetime]
    stopped: Server
    successor: Server
    takeover_s: float
    copies: list[Copy] = field(default_factory=list)
    #: By message id: when it was first seen, at the latest.
    seen: dict[str, datetime] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)


async def crash(settings: Settings, alone: asyncio.Event) -> Outcome:
    """The default lookahead and lease; messages due all the time while nobody leads, and after."""
    async with AsyncExitStack() as stack:
        stack.callback(alone.set)
        stage = await stack.enter_async_context(
            stage_for(settings, endpoint="crash", idle_interval=IDLE_SECONDS * SECOND)
        )
        leader, successor = await stage.leader_and_follower()
        # A new process knows the service's clock to a second, and some requests later much better.
        await leader.wait("pass_finished", count=10)
        now = stage.now()
        due = await stage.schedule([now + (3 + n / 5) * SECOND for n in range(180)])
        # Those within the lookahead are handed over; the window of the others opens while nobody leads.
        within = sum(instant <= now + settings.lookahead for instant in due.values())
        await leader.wait("handed_over", count=within)
        killed_at = leader.send(signal.SIGKILL)
        alone.set()
        outcome = Outcome(settings, due, leader, successor, 0.0)
        async for copy, latest in stage.arrivals(len(due), within=60.0):
            outcome.copies.append(copy)
            outcome.seen.setdefault(copy.message_id, latest)
        outcome.takeover_s = (await successor.wait("term_began")).heard_at - killed_at
        return outcome


async def crash_under_load(settings: Settings, alone: asyncio.Event) -> Outcome:
    """Without lookahead, in the middle of a page, with removals under way."""
    await alone.wait()
    async with stage_for(settings, endpoint="crash-under-load", lookahead=ZERO) as stage:
        due = await stage.schedule([stage.now() + 5 * SECOND] * MESSAGES)
        leader, successor = await stage.leader_and_follower()
        await leader.wait("handed_over", count=MESSAGES // 4)
        killed_at = leader.send(signal.SIGKILL)
        began = await successor.wait("term_began")
        outcome = Outcome(stage.settings, due, leader, successor, began.heard_at - killed_at)
        await finished(successor)
        outcome.copies, outcome.left = await stage.drain(), await stage.waiting()
        return outcome


def visible_at(told: Told) -> datetime:
    """When a message that was handed over became visible, at the latest."""
    return datetime.fromisoformat(told.values["handed_over_at"]) + told.values["hidden_for"] * SECOND


async def finished(server: Server) -> None:
    """Wait for the end of a pass that handed something over."""
    await server.wait("pass_finished", where=lambda told: told.values["handed_over"] > 0)


async def frozen(settings: Settings, alone: asyncio.Event) -> Outcome:
    """Stopped for longer than its lease in the middle of a page, then resumed."""
    await alone.wait()
    async with stage_for(settings, endpoint="frozen", lookahead=ZERO) as stage:
        due = await stage.schedule([stage.now() + 5 * SECOND] * MESSAGES)
        leader, successor = await stage.leader_and_follower()
        await leader.wait("handed_over", count=MESSAGES // 4)
        stopped_at = leader.send(signal.SIGSTOP)
        began = await successor.wait("term_began")
        outcome = Outcome(settings, due, leader, successor, began.heard_at - stopped_at)
        await finished(successor)
        await CLOCK.sleep(stopped_at + FROZEN_SECONDS - CLOCK.monotonic())

        outcome.copies = await stage.drain()
        leader.send(signal.SIGCONT)
        # The pass that it was in comes to its end, without another send.
        await leader.wait("term_lost")
        await leader.wait("pass_finished", where=lambda told: told.values["handed_over"] > 0)
        assert await leader.process.stop() == 0
        outcome.seen = {copy.message_id: copy.inserted_at for copy in await stage.drain()}
        outcome.left = await stage.waiting()
        return outcome


SCENARIOS: dict[str, Callable[[Settings, asyncio.Event], Awaitable[Outcome]]] = {
    "crash": crash,
    "crash_under_load": crash_under_load,
    "frozen": frozen,
}


@pytest.fixture(scope="module")
def outcomes(azurite_settings: Settings) -> dict[str, Outcome | BaseException]:
    async def all_of_them() -> list[Outcome | BaseException]:
        alone = asyncio.Event()
        running = (scenario(azurite_settings, alone) for scenario in SCENARIOS.values())
        return await asyncio.gather(*running, return_exceptions=True)

    return dict(zip(SCENARIOS, asyncio.run(all_of_them()), strict=True))


@pytest.fixture
def outcome(outcomes, request) -> Outcome:
    """Of the scenario that the test is named after."""
    found = outcomes[request.param]
    if isinstance(found, BaseException):
        raise found
    return found


def of(scenario: str):
    return pytest.mark.parametrize("outcome", [scenario], indirect=True, ids=[""])


@pytest.mark.parametrize("outcome", SCENARIOS, indirect=True)
def test_somebody_takes_over_within_a_lease_and_a_beat(outcome):
    print(f"take-over after {outcome.takeover_s:.2f} s")
    assert outcome.takeover_s <= outcome.settings.lease_duration.total_seconds() + BEAT_SECONDS


@of("crash")
def test_with_the_default_lookahead_a_crash_makes_nothing_late(outcome):
    assert outcome.successor.of("handed_over")  # so some were the successor's
    first: dict[str, float] = {}  # of a message that was doubled the first copy counts
    for told in outcome.stopped.of("handed_over") + outcome.successor.of("handed_over"):
        name = told.values["message_id"]
        late = (visible_at(told) - outcome.due[name]).total_seconds()
        first[name] = min(late, first.get(name, late))
    visible = list(first.values())
    seen = [(outcome.seen[name] - due).total_seconds() for name, due in outcome.due.items()]
    print(f"visible up to {max(visible):.3f} s after the due time, seen {min(seen):.3f} to {max(seen):.3f} s")
    assert outcome.seen.keys() == outcome.due.keys()
    assert min(seen) >= 0
    assert max(visible) <= VISIBLE_WITHIN
    assert max(seen) <= SEEN_WITHIN


@of("crash_under_load")
def test_a_crash_under_load_loses_nothing_and_doubles_no_more_than_the_limit(outcome):
    doubled = duplicates(outcome.copies)
    print(f"{len(outcome.due)} messages, {doubled.total()} duplicates")
    assert {copy.message_id for copy in outcome.copies} == outcome.due.keys()
    assert outcome.left == set()
    assert doubled.total() <= outcome.settings.unremoved_limit
    # Each duplicate is the same message, once from each of the two leaders.
    for message_id in doubled:
        copies = [copy for copy in outcome.copies if copy.message_id == message_id]
        assert sorted(copy.term or 0 for copy in copies) == [1, 2]


@of("frozen")
def test_a_frozen_leader_sends_nothing_more_in_its_old_term(outcome):
    assert outcome.successor.of("handed_over")
    # All that the old term ever sent was in the queue before it was resumed.
    assert outcome.seen == {}
    old = outcome.stopped.of("term_began")[0].values["term"]
    in_queue = {copy.message_id for copy in outcome.copies if copy.term == old}
    by_its_own_word = {told.values["message_id"] for told in outcome.stopped.of("handed_over")}
    assert {told.values["term"] for told in outcome.stopped.of("handed_over")} == {old}
    assert by_its_own_word <= in_queue
    [lost] = outcome.stopped.of("term_lost")
    assert (lost.values["term"], lost.values["reason"]) == (old, "expired")


@of("frozen")
def test_a_frozen_leader_loses_nothing_and_doubles_no_more_than_the_limit(outcome):
    doubled = duplicates(outcome.copies)
    print(f"{len(outcome.due)} messages, {doubled.total()} duplicates")
    assert {copy.message_id for copy in outcome.copies} == outcome.due.keys()
    assert outcome.left == set()
    assert doubled.total() <= outcome.settings.unremoved_limit
