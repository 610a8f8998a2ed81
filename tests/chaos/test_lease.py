"""The lease decides who hands over: a stranger's, and one that is given back by a clean stop."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceExistsError
from chaos_cases import CLOCK, SECOND, Stage, duplicates, stage_for


@pytest.fixture
async def stage(postdate_settings) -> AsyncIterator[Stage]:
    async with stage_for(
        postdate_settings, lookahead=timedelta(0), probe_interval=SECOND / 5, idle_interval=SECOND
    ) as made:
        yield made


async def test_a_lease_held_by_another_client_keeps_us_a_follower_until_it_is_released(stage):
    strangers = stage.lease()
    await strangers.acquire(lease_duration=60)
    due = await stage.schedule([stage.now() + SECOND] * 40)
    servers = [await stage.start(), await stage.start()]

    # Time for some ten tries to lead by each, with everything overdue.
    await CLOCK.sleep(2.5)
    assert [server.of("term_began") + server.of("handed_over") for server in servers] == [[], []]
    assert await stage.waiting() == due.keys()
    assert await stage.drain() == []

    released_at = CLOCK.monotonic()
    await strangers.release()
    leading = [asyncio.ensure_future(server.wait("handed_over", count=len(due))) for server in servers]
    done, rest = await asyncio.wait(leading, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    [told] = [task.result() for task in done]
    print(f"led and handed over {len(due)} within {told.heard_at - released_at:.2f} s after the release")
    assert told.heard_at - released_at < 3.0
    assert {copy.message_id for copy in await stage.drain()} == due.keys()


async def test_a_clean_stop_under_load_finishes_removes_and_frees_the_lease(stage):
    leader = await stage.start()
    await leader.wait("term_began")
    due = await stage.schedule([stage.now() + 2 * SECOND] * 2000)
    await leader.wait("handed_over", count=300)

    asked_at = leader.send(signal.SIGTERM)
    assert await leader.process.ended() == 0
    ended_at = CLOCK.monotonic()
    state = await stage.lease_state()
    lease = stage.lease()
    while True:  # if it were held, so that the figure is measured
        with suppress(ResourceExistsError):
            await lease.acquire(lease_duration=15)
            break
    acquired_at = CLOCK.monotonic()
    print(
        f"stopped in {ended_at - asked_at:.3f} s; next acquire {acquired_at - ended_at:.3f} s after the exit"
    )
    assert state == "available"
    assert acquired_at - ended_at < 1.0
    assert ended_at - asked_at < 5.0

    # What was sent has no row any more, and what has a row was not sent.
    copies = await stage.drain()
    sent = {copy.message_id for copy in copies}
    assert sent == {told.values["message_id"] for told in leader.of("handed_over")}
    assert 300 <= len(sent) < len(due)
    assert await stage.waiting() == due.keys() - sent

    await lease.release()
    successor = await stage.start()
    await successor.wait("handed_over", count=len(due) - len(sent))
    await successor.wait("pass_finished", since=successor.told.index(successor.of("handed_over")[-1]))
    copies += await stage.drain()
    assert await stage.waiting() == set()
    assert {copy.message_id for copy in copies} == due.keys()
    assert not duplicates(copies)
