"""Rows that can't be delivered, before all others in the table, delay nobody else."""

from collections import defaultdict
from datetime import datetime
from itertools import pairwise

from chaos_cases import SECOND, stage_for

from postdate.demo.processes import Told
from postdate.model import headers as h

RETRIES = 3
RETRY_BASE = 0.4
UNDELIVERABLE = 200
#: Up to one second of rounding, and one for a machine that several processes share. Who waited out the
#: back-offs of all undeliverable rows, 32 at a time, would be late by far more, in spite of the lookahead.
LATE_SECONDS = 2.0
#: What a slow machine may take for one attempt of all of them.
LOOKAHEAD = 3 * SECOND


def instant(told: Told, name: str) -> datetime:
    return datetime.fromisoformat(told.values[name])


async def test_undeliverable_rows_delay_no_other_and_end_in_the_error_queue(postdate_settings):
    async with stage_for(
        postdate_settings,
        lookahead=LOOKAHEAD,
        idle_interval=SECOND,
        number_of_retries=RETRIES,
        retry_base=RETRY_BASE * SECOND,
    ) as stage:
        start = stage.now() + LOOKAHEAD + 4 * SECOND
        gone = f"{stage.settings.endpoint}-gone"
        await stage.client.setup(gone)
        bad = await stage.schedule([start] * UNDELIVERABLE, queue=gone, prefix="bad")
        # Right behind them, and all the time while they are tried again and again.
        good = await stage.schedule([start + n * SECOND / 20 for n in range(1, 101)])
        await stage.client.parts.backend.sender.delete(gone)
        server = await stage.start()

        lateness = {}
        async for copy, latest in stage.arrivals(len(good), within=30):
            lateness.setdefault(copy.message_id, (latest - good[copy.message_id]).total_seconds())
        print(f"lateness of the others from {min(lateness.values()):.3f} to {max(lateness.values()):.3f} s")
        assert lateness.keys() == good.keys()
        assert min(lateness.values()) >= 0
        assert max(lateness.values()) <= LATE_SECONDS

        await server.wait("moved_to_error_queue", count=UNDELIVERABLE)
        attempts = defaultdict(list)
        for told in server.of("dispatch_failed"):
            assert told.values["counted"]
            attempts[told.values["message_id"]].append(told)
        moved = {told.values["message_id"]: told for told in server.of("moved_to_error_queue")}
        assert attempts.keys() == moved.keys() == bad.keys()
        for message_id, failed in attempts.items():
            # The last one, which does not count as a failed dispatch of a row that stays, moves it.
            assert [told.values["attempts"] for told in failed] == list(range(1, RETRIES + 1))
            assert moved[message_id].values["attempts"] == RETRIES + 1
            # Each try comes after the back-off of the one before, and each back-off is at least half of
            # its full length (the rest is chance).
            tries = [start - LOOKAHEAD, *(instant(told, "next_attempt_at") for told in failed)]
            for number, (before, after) in enumerate(pairwise(tries)):
                assert (after - before).total_seconds() >= RETRY_BASE * 2**number / 2 - 0.05
            for before, after in pairwise([*failed, moved[message_id]]):
                assert instant(after, "time") >= instant(before, "next_attempt_at")

        copies = await stage.drain(stage.settings.error_queue)
        assert sorted(copy.message_id for copy in copies) == sorted(bad)
        for copy in copies:
            headers = copy.headers
            assert headers[h.FAILED_QUEUE] == gone
            assert headers[h.ATTEMPTS] == str(RETRIES + 1)
            assert headers[h.EXCEPTION_TYPE] == "postdate.errors.DestinationNotFound"
            assert f"'{gone}' does not exist" in (headers[h.EXCEPTION_MESSAGE] or "")
            assert headers[h.STACK_TRACE]
            assert h.parse_instant(headers[h.TIME_OF_FAILURE] or "") >= start - LOOKAHEAD
        await server.process.stop()
        assert await stage.waiting() == set()
