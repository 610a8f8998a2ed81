"""Many rows to a real table: how many requests they cost, and what is told when some of them fail."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from azure_cases import HOUR, Rig, rig_for

from postdate import Outgoing
from postdate.compose import put_together
from postdate.engine.bulk import BulkIntake
from postdate.errors import MessageTooLarge, OutcomeUnknown, SchedulingInterrupted, ServiceBusy
from postdate.events import Events

QUEUE = "bulk"


@dataclass
class Scene:
    rig: Rig
    bulk: BulkIntake
    #: The start of an hour that is far away.
    start: datetime

    def messages(self, count: int, spread: timedelta) -> list[Outgoing]:
        """So many messages, evenly spread from `start` on, in due order."""
        return [
            Outgoing(QUEUE, {"order": n}, at=self.start + n * spread / count, message_id=f"m{n}")
            for n in range(count)
        ]


@pytest.fixture
async def scene(postdate_settings) -> AsyncIterator[Scene]:
    async with rig_for(postdate_settings) as rig:
        await rig.backend.sender.create(QUEUE)
        parts = put_together(postdate_settings, rig.backend, rig.clock, Events([]))
        start = rig.clock.now().replace(minute=0, second=0, microsecond=0) + 48 * HOUR
        rig.faults.calls.clear()
        yield Scene(rig, parts.bulk, start)


@pytest.mark.parametrize(("shuffled", "most"), [(False, 125), (True, 144)])
async def test_transactions_of_10000_rows_over_24_hours_are_near_the_fewest(scene, shuffled, most):
    # The fewest: 417 rows an hour are five transactions, 120 in all. In any order, each of two chunks has
    # 208 rows of each hour: three transactions.
    messages = scene.messages(10_000, 24 * HOUR)
    if shuffled:
        random.Random(5).shuffle(messages)
    result = await scene.bulk.schedule_many(messages)
    assert all(result.handles)
    faults = scene.rig.faults
    assert faults.count("table.batch_insert") + faults.count("table.insert") <= most
    # The others: is the queue there.
    assert len(faults.calls) <= most + 2
    assert len(await scene.rig.rows()) == 10_000


async def test_a_row_refused_inside_a_transaction_is_told_by_its_index_and_the_99_others_are_kept(scene):
    refusal = (
        b"--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
        b"--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\r\n"
        b'{"odata.error":{"code":"PropertyValueTooLarge","message":{"lang":"en-US","value":"57:too large"}}}\r\n'
        b"--changesetresponse_1--\r\n--batchresponse_1--\r\n"
    )
    scene.rig.faults.on("table.batch_insert").respond(
        202, headers={"Content-Type": "multipart/mixed; boundary=batchresponse_1"}, body=refusal
    )
    result = await scene.bulk.schedule_many(scene.messages(100, HOUR))
    assert list(result.failures) == [57]
    assert isinstance(result.failures[57], MessageTooLarge)
    assert [n for n, handle in enumerate(result.handles) if handle is None] == [57]
    assert len(await scene.rig.rows()) == 99


async def test_a_service_that_is_busy_for_a_moment_is_waited_for(scene):
    scene.rig.faults.on("table.batch_insert", nth=3, times=2).respond(503, "ServerBusy")
    result = await scene.bulk.schedule_many(scene.messages(1_000, 10 * HOUR))
    assert all(result.handles)
    assert len(await scene.rig.rows()) == 1_000


@pytest.mark.parametrize("fault", ["busy", "silent"])
async def test_after_an_interruption_a_repeat_goes_on_where_it_says(scene, fault):
    messages = scene.messages(1_000, 10 * HOUR)
    broken = (scene.start + 6 * HOUR).strftime("%Y%m%d%H").encode()
    rule = scene.rig.faults.on("table.batch_insert", when=lambda call: broken in call.body, times=99)
    if fault == "busy":
        rule.respond(503, "ServerBusy")
    else:
        rule.time_out()  # applied all the same
    with pytest.raises(SchedulingInterrupted) as caught:
        await scene.bulk.schedule_many(messages)
    error = caught.value
    assert error.index == 600
    assert isinstance(error.failures[600], ServiceBusy if fault == "busy" else OutcomeUnknown)
    durable = {n for n, handle in enumerate(error.handles) if handle is not None}
    assert set(range(600)) <= durable
    assert durable.isdisjoint(range(600, 700))
    stored = {row.delayed.message.message_id for row in await scene.rig.rows()}
    assert {f"m{n}" for n in durable} <= stored
    assert len(stored) == len(durable) + (0 if fault == "busy" else 100)

    rule.takes = lambda call: False  # the service is well again
    rest = await scene.bulk.schedule_many(messages[error.index :])
    assert all(rest.handles)
    assert len(await scene.rig.rows()) == 1_000
