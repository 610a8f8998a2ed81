"""Slowing down when nothing succeeds: it begins once, a success always ends it, and all speed comes back."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from receiver_cases import open_scene, serving, serving_open

from postdate.core.slowdown import Slowdown
from postdate.events import BackToSpeed, Handled, SlowedDown

PLACES = 8


def told(slowdown, outcomes):
    """What is said of each outcome, in words."""
    said = []
    for succeeded in outcomes:
        if succeeded:
            said.append("ended" if slowdown.succeeded() else "")
        else:
            said.append("began" if slowdown.failed() else "")
    return said


def test_it_begins_with_exactly_the_last_of_the_failures():
    slowdown = Slowdown(3)
    assert told(slowdown, [False, False]) == ["", ""]
    assert not slowdown.active
    assert told(slowdown, [False]) == ["began"]
    assert slowdown.active
    assert told(slowdown, [False] * 5) == [""] * 5  # it began once
    assert slowdown.active


def test_a_success_just_before_it_would_begin_keeps_it_from_beginning():
    slowdown = Slowdown(3)
    assert told(slowdown, [False, False, True, False]) == [""] * 4
    assert not slowdown.active


def test_a_success_just_after_it_began_ends_it():
    slowdown = Slowdown(3)
    assert told(slowdown, [False, False, False, True]) == ["", "", "began", "ended"]
    assert not slowdown.active
    assert told(slowdown, [False, False]) == ["", ""]  # the count is at its beginning again
    assert not slowdown.active


def test_without_a_limit_it_never_begins_nor_ends():
    assert told(Slowdown(0), [False] * 1000 + [True]) == [""] * 1001
    assert not Slowdown(0).active


@given(limit=st.integers(0, 5), outcomes=st.lists(st.booleans(), max_size=60))
def test_in_any_order_of_outcomes_the_failures_since_the_last_success_decide(limit, outcomes):
    slowdown = Slowdown(limit)
    for done in range(len(outcomes)):
        was = slowdown.active
        (said,) = told(slowdown, [outcomes[done]])
        in_a_row = len(list(itertools.takewhile(lambda ok: not ok, reversed(outcomes[: done + 1]))))
        assert slowdown.active == (0 < limit <= in_a_row)
        assert said == {(False, True): "began", (True, False): "ended"}.get((was, slowdown.active), "")


# --- in the receiver ------------------------------------------------------------------------------


class Room:
    """Handlers that wait for a word, and how many were inside at once."""

    def __init__(self, scene, **options):
        options = {"immediate_retries": 5, "delayed_retries": 0, "receive_concurrency": PLACES} | options
        self.endpoint = scene.endpoint(rate_limit_pause=timedelta(seconds=1), **options)
        self.open = asyncio.Event()
        self.inside, self.most = 0, 0
        self.works = False

        @self.endpoint.handler
        async def work(body: bytes) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.open.wait()
            finally:
                self.inside -= 1
            if body == b"bad" and not self.works:
                raise RuntimeError("down")

    def close(self):
        """From now on handlers wait."""
        self.open = asyncio.Event()
        self.most = 0


async def test_while_it_lasts_one_is_in_hand_and_the_first_success_brings_all_places_back():
    """D8: the 10th failure in a row, with 8 places."""
    async with open_scene() as scene:
        room = Room(scene, rate_limit_after=10)
        room.open.set()
        for n in range(3 * PLACES):
            await scene.put(f"m{n}", b"bad")
        async with serving(room.endpoint):
            await scene.clock.advance(5)
            assert len(scene.log.of(SlowedDown)) == 1
            room.close()
            await scene.clock.advance(10)  # within one pause it would be more than one
            assert room.most == room.inside == 1
            room.works = True
            room.open.set()  # the first success
            await scene.log.wait(BackToSpeed, within=1)
            room.close()
            await scene.clock.advance(1)
            assert room.inside == PLACES
            room.open.set()
            await scene.clock.advance(1)
        assert len(scene.log.of(SlowedDown)) == len(scene.log.of(BackToSpeed)) == 1
        assert len(scene.log.of(Handled)) == 3 * PLACES


@pytest.mark.parametrize("good", [PLACES - 2, PLACES - 1], ids=["just before", "just after"])
async def test_a_success_in_the_moment_in_which_it_begins_leaves_all_places(good):
    """D9: all end in the same moment, one of them well, beside the failure with which it begins."""
    async with open_scene() as scene:
        room = Room(scene, rate_limit_after=PLACES - 1)
        for n in range(PLACES):
            await scene.put(f"m{n}", b"good" if n == good else b"bad")
        async with serving(room.endpoint):
            await scene.clock.advance(1)
            assert room.inside == PLACES
            ends, room.open = room.open, asyncio.Event()  # whoever comes again waits
            ends.set()
            await scene.clock.advance(2)
            assert room.inside == PLACES - 1  # all that failed are in hand again, side by side
            room.works = True
            room.open.set()
            await scene.clock.advance(2)
        assert len(scene.log.of(SlowedDown)) == len(scene.log.of(BackToSpeed))
        assert len(scene.log.of(Handled)) == PLACES


async def test_a_success_whose_acknowledgement_takes_until_it_has_begun_ends_it():
    """D9: switching back wins, however late it is heard."""
    async with open_scene() as scene:
        room = Room(scene, rate_limit_after=PLACES - 1)
        for n in range(PLACES):
            await scene.put(f"m{n}", b"good" if n == 0 else b"bad")
        async with room.endpoint:
            queues = room.endpoint.parts.backend.receiver
            ack = queues.ack

            async def slow(received):
                await scene.clock.sleep(0.5)
                return await ack(received)

            queues.ack = slow
            async with serving_open(room.endpoint):
                await scene.clock.advance(1)
                ends, room.open = room.open, asyncio.Event()
                ends.set()
                await scene.clock.advance(0.4)
                assert len(scene.log.of(SlowedDown)) == 1
                assert scene.log.of(BackToSpeed) == []
                await scene.clock.advance(2)
                assert len(scene.log.of(BackToSpeed)) == 1
                assert room.inside == PLACES - 1
                room.works = True
                room.open.set()
                await scene.clock.advance(2)
        assert len(scene.log.of(SlowedDown)) == 1
        assert len(scene.log.of(Handled)) == PLACES
