"""The stand-in counts each row that it is given, and answers as late as it is told."""

from datetime import UTC, datetime, timedelta

from postdate import Endpoint, Outgoing
from postdate.clock import SystemClock
from postdate.settings import load_settings
from postdate.testing.stand_in import stand_in

FIRST = datetime(2040, 1, 1, tzinfo=UTC)


async def test_rows_are_counted_and_answers_take_their_time():
    with stand_in(0.2) as (connection, count):
        async with Endpoint(load_settings(endpoint="counted", connection=connection)) as endpoint:
            began = SystemClock().monotonic()
            done = await endpoint.schedule_many(
                Outgoing("target", "x", at=FIRST + timedelta(seconds=n)) for n in range(1_000)
            )
            seconds = SystemClock().monotonic() - began
        assert not done.failures
        assert count() == 1_000
        assert seconds >= 3 * 0.2  # the clock, the queue, and transactions side by side
