"""Consumers killed at each step of a receive cycle: no message is lost, and no effect is had twice.

Each scenario has an endpoint of its own, a consumer that dies (or stands still) at its step, and a healthy one
beside it. They run side by side, as many as the machine takes.
"""

import asyncio
import signal
import sys
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from chaos_cases import CLOCK, SECOND

from postdate import Endpoint
from postdate.demo.processes import environment_of
from postdate.inbox import Inbox

PROGRAM = Path(__file__).with_name("inbox_consumer.py")
MESSAGES = 8
AT_ONCE = 3
SOON = 60.0
KILLS = [
    ("receiver.receive", "after"),
    *(
        (step, when)
        for step in ("inbox.claim", "inbox.complete", "sender.send")
        for when in ("before", "after")
    ),
    *((step, when) for step in ("inbox.settle", "receiver.ack") for when in ("before", "after")),
]


HANDLED_AT_ONCE = 2


@dataclass
class Outcome:
    """What came of a scenario, by order."""

    records: dict
    #: Message ids and bodies of all copies.
    copies: dict
    #: How often a consumer downstream, with an inbox, took an invoice.
    taken: dict
    #: What the stopped consumer said when it had gone on.
    said: str


class Consumer:
    """One consumer process."""

    def __init__(self, process):
        self.process = process

    @classmethod
    async def start(cls, settings, *arguments):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, PROGRAM, *arguments),
            env=environment_of(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def heard(self):
        """The next line that it says."""
        return (await asyncio.wait_for(self.process.stdout.readline(), SOON)).decode().strip()

    async def begin(self):
        self.process.stdin.write(b"go\n")
        await self.process.stdin.drain()

    async def stop(self):
        """Let it end."""
        self.process.stdin.close()
        await asyncio.wait_for(self.process.stdout.read(), SOON)
        assert await asyncio.wait_for(self.process.wait(), SOON) == 0

    def end(self):
        if self.process.returncode is None:
            self.process.kill()


@asynccontextmanager
async def consumers(settings, how, invoices, *trouble):
    """The one in trouble and the healthy one, both about to begin."""
    processes = []
    try:
        processes.append(await Consumer.start(settings, how, invoices, *trouble))
        processes.append(await Consumer.start(settings, how, invoices))
        assert [await one.heard() for one in processes] == ["ready", "ready"]
        yield processes
    finally:
        for one in processes:
            one.end()
            await one.process.wait()


async def is_empty(endpoint):
    """Wait until the endpoint's queue holds nothing, hidden messages included."""
    async with asyncio.timeout(SOON):
        while await endpoint.parts.backend.sender.approximate_count(endpoint.settings.own_queue):
            await CLOCK.sleep(0.2)


async def scenario(settings, name, how, step, when, number):
    changes = {"visibility_timeout": 2 * SECOND, "receive_concurrency": HANDLED_AT_ONCE}
    settings = settings.model_copy(update={"endpoint": f"inbox-{name}", **changes})
    invoices = f"{settings.own_queue}-invoices"
    async with Endpoint(settings) as endpoint:
        await endpoint.setup(invoices, inbox=True)
        for order in range(MESSAGES):
            await endpoint.send(settings.own_queue, b"", message_id=f"order-{order}")
        said = ""
        async with consumers(settings, how, invoices, step, when, number.name) as (troubled, healthy):
            await troubled.begin()
            await healthy.begin()
            if number is signal.SIGKILL:
                assert await asyncio.wait_for(troubled.process.wait(), SOON) == -signal.SIGKILL
            await is_empty(endpoint)
            if number is signal.SIGSTOP:
                troubled.process.send_signal(signal.SIGCONT)
                said = await troubled.heard()
                await troubled.stop()
            await healthy.stop()
        return await outcome(endpoint, invoices, said)


async def outcome(endpoint, invoices, said):
    records, copies, taken = {}, defaultdict(list), defaultdict(int)
    inbox, at = Inbox(endpoint, consumer="billing"), endpoint.parts.clock.now()
    for number in range(MESSAGES):
        records[f"order-{number}"] = await inbox.recorded(f"order-{number}", at=at)
    downstream = Inbox(endpoint, consumer="shipping")
    async for delivery in endpoint.receive(invoices, idle=timedelta(0)):
        invoice = delivery.json()
        copies[invoice["order"]].append((delivery.message_id, invoice["attempt"]))
        async with downstream.once_for(delivery) as once:
            taken[invoice["order"]] += once.fresh
        await delivery.ack()
    return Outcome(records, dict(copies), dict(taken), said)


SCENARIOS = {
    **{
        f"{how}-{step.partition('.')[2]}-{when}": (how, step, when, signal.SIGKILL)
        for how in ("loop", "handler")  # a loop of its own, or a handler that the endpoint's receiver runs
        for step, when in KILLS
    },
    "frozen": ("loop", "inbox.complete", "before", signal.SIGSTOP),
}


@pytest.fixture(scope="module")
def outcomes(azurite_settings):
    async def one(turns, name):
        async with turns:
            return await scenario(azurite_settings, name, *SCENARIOS[name])

    async def all_of_them():
        turns = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(one(turns, name) for name in SCENARIOS), return_exceptions=True)

    return dict(zip(SCENARIOS, asyncio.run(all_of_them()), strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_consumer_that_dies_loses_nothing_and_doubles_no_effect(outcomes, name):
    found = outcomes[name]
    if isinstance(found, BaseException):
        raise found
    orders = {f"order-{number}" for number in range(MESSAGES)}
    assert found.copies.keys() == orders
    assert found.taken == dict.fromkeys(orders, 1)
    for order in orders:
        # All copies are one message: that of the attempt whose record was kept.
        assert len(set(found.copies[order])) == 1
        assert found.copies[order][0][1] == found.records[order]["bill"]["attempt"]
    doubled = sum(map(len, found.copies.values())) - MESSAGES
    print(f"{name}: {doubled} copies too many, which the consumer downstream dropped")
    assert doubled <= HANDLED_AT_ONCE


def test_a_frozen_consumer_can_keep_nothing_after_another_one_took_over(outcomes):
    found = outcomes["frozen"]
    assert found.said == "ClaimLost"
    assert max(record["bill"]["attempt"] for record in found.records.values()) >= 2
