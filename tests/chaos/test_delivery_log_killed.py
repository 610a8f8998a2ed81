"""kill -9 of a leader that keeps a delivery log: what was written stays whole, and little is missing."""

import asyncio
import signal
from collections import Counter
from datetime import datetime

from chaos_cases import SECOND, stage_for

from postdate.model.delivery_log import LogOutcome, decode_record

MESSAGES = 1_500
#: As soon as this many were handed over the leader is killed, in the middle of the others.
KILLED_AFTER = 700
INTERVAL = SECOND / 2
#: What a block that is being written at the kill, on a machine that several processes share, may hold besides.
UNDER_WAY = SECOND


async def logged(stage):
    """All records, each line of each file whole."""
    log = stage.client.parts.backend.delivery_log
    found = []
    async for file in log.files():
        content = await log.read(file.name, 0, file.length)
        assert content.endswith(b"\n")
        found += [decode_record(line) for line in content.splitlines()]
    return found


async def test_a_killed_leader_leaves_whole_lines_and_at_most_its_last_interval_is_missing(postdate_settings):
    async with stage_for(
        postdate_settings, delivery_log=True, delivery_log_interval=INTERVAL, lookahead=5 * SECOND
    ) as stage:
        first = await stage.start()
        await first.wait("term_began")
        start = stage.now() + 6 * SECOND
        due = await stage.schedule([start + n * SECOND / 300 for n in range(MESSAGES)])
        await first.wait("handed_over", count=KILLED_AFTER)
        first.send(signal.SIGKILL)
        await first.process.ended()
        await stage.lease().break_lease(lease_break_period=0)
        second = await stage.start()
        await second.wait("removed", where=lambda told: int(told.values["count"]) > 0)
        async with asyncio.timeout(60):
            while await stage.waiting():
                await stage.client.parts.clock.sleep(0.2)
        second.send(signal.SIGTERM)
        await second.process.ended()

        told = {
            one.values["message_id"]: datetime.fromisoformat(one.values["handed_over_at"])
            for one in first.of("handed_over")
        }
        records = await logged(stage)
        # Of the killed one, by its term: what it sent last was sent again by the next one.
        term = int(first.of("term_began")[0].values["term"])
        handed = [one for one in records if one.outcome is LogOutcome.HANDED_OVER]
        of_first = Counter(one.message_id for one in handed if one.term == term)
        of_second = Counter(one.message_id for one in handed if one.term != term)
        assert max(of_first.values()) == 1
        assert max(of_second.values()) == 1
        missing = set(told) - of_first.keys()
        killed_at = max(told.values())
        print(f"{len(told)} handed over by the killed leader, {len(missing)} of them not in its log")
        assert of_first
        assert all(killed_at - told[one] <= INTERVAL + UNDER_WAY for one in missing)
        assert of_first.keys() | of_second.keys() | missing == due.keys()
