"""Asked against real delay of delayed retries: the scenario of the article on default retries.

20 messages fail 20 times each, put off by 1, 2, ... 20 units: 420 attempts, 400 delays between them
(recoverability, section 10). `python -m bench.retries` runs it on an Azurite of its own, a unit being a tenth
of a second, prints the lateness and draws docs/images/retries.png.
"""

import asyncio
import itertools
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.canvas import pyplot, save
from postdate import Endpoint, MessageContext, Settings
from postdate.events import Event, MessageFailed
from postdate.local import Azurite
from postdate.settings import load_settings

MESSAGES = 20
RETRIES = 20
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "retries.png"
#: Of the settings: an idle receiver looks this often, so that a tenth of a second can be told from two.
IDLE = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Attempt:
    """One call of the handler."""

    order: str
    number: int
    retries_header: str | None
    #: Monotonic seconds: a storage clock that is still being learned moves by up to a second.
    at: float


@dataclass(frozen=True)
class Gap:
    """From one attempt to the next of the same order, in seconds."""

    retry: int
    asked: float
    real: float


def changes(unit: timedelta) -> dict[str, Any]:
    """The settings of the scenario."""
    return {
        "immediate_retries": 0,
        "delayed_retries": RETRIES,
        "delayed_retry_increase": unit,
        "receive_concurrency": 2 * MESSAGES,
    }


class Scenario:
    """Endpoints that fail each message, and what they noted."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.failed: list[MessageFailed] = []
        self.all_failed = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Observe an endpoint."""
        if isinstance(event, MessageFailed):
            self.failed.append(event)
            if len(self.failed) == MESSAGES:
                self.all_failed.set()

    def on(self, endpoint: Endpoint, monotonic: Callable[[], float]) -> Endpoint:
        """Register the handler that notes and fails."""

        @endpoint.handler
        async def fail(order: str, context: MessageContext) -> None:
            header = context.headers.get("NServiceBus.Retries")
            self.attempts.append(Attempt(order, context.attempt, header, monotonic()))
            raise RuntimeError(f"order {order} can't be placed")

        return endpoint

    async def send(self, endpoint: Endpoint) -> None:
        """All orders, to the endpoint's own queue."""
        for number in range(1, MESSAGES + 1):
            await endpoint.send(endpoint.settings.own_queue, str(number), message_id=f"order-{number}")

    def gaps(self, unit: timedelta) -> list[Gap]:
        """Each attempt joined to the one before it of the same order."""
        by_order: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            by_order.setdefault(attempt.order, []).append(attempt)
        return [
            Gap(k, k * unit.total_seconds(), later.at - earlier.at)
            for attempts in by_order.values()
            for k, (earlier, later) in enumerate(itertools.pairwise(attempts), start=1)
        ]


async def run_scenario(
    endpoints: Sequence[Endpoint],
    scenario: Scenario,
    wait: Callable[[], Awaitable[object]],
) -> None:
    """Send the orders and serve until `wait` is over.

    Args:
        endpoints: open ones, with the scenario's handler; the first sends.
        scenario: that is told what they do.
        wait: for the end.
    """
    await scenario.send(endpoints[0])
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for endpoint in endpoints:
            group.create_task(endpoint.run(stop))
        try:
            await wait()
        finally:
            stop.set()


async def on_storage(settings: Settings, unit: timedelta) -> Scenario:
    """The whole scenario on a storage account, one endpoint handling all."""
    scenario = Scenario()
    endpoint = Endpoint(
        settings.model_copy(update={**changes(unit), "receive_idle_interval": IDLE}),
        observers=[scenario.hear],
    )
    async with endpoint:
        await endpoint.setup()
        scenario.on(endpoint, endpoint.parts.clock.monotonic)
        await run_scenario([endpoint], scenario, scenario.all_failed.wait)
    return scenario


def draw(gaps: Sequence[Gap], path: Path) -> None:
    """Asked against real delay, and what one is later than the other."""
    plt = pyplot()

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    asked, real = [gap.asked for gap in gaps], [gap.real for gap in gaps]
    left.plot([0, max(asked)], [0, max(asked)], color="grey", linewidth=1)
    left.scatter(asked, real, s=8)
    left.set(xlabel="delay asked for (s)", ylabel="from attempt to attempt (s)")
    right.scatter(asked, [1000 * (r - a) for a, r in zip(asked, real, strict=True)], s=8)
    right.set(xlabel="delay asked for (s)", ylabel="later than asked (ms)")
    right.set_ylim(bottom=0)
    figure.suptitle(f"{len(gaps)} delayed retries of {MESSAGES} messages on Azurite")
    save(figure, path)


def main() -> int:
    """Measure and draw."""
    logging.disable(logging.CRITICAL)  # 420 failures are what it is about
    unit = timedelta(seconds=0.1)
    with Azurite() as azurite:
        settings = load_settings(endpoint="retries", connection=azurite.connection_string)
        gaps = asyncio.run(on_storage(settings, unit)).gaps(unit)
    late = sorted(gap.real - gap.asked for gap in gaps)
    found = {
        "delays": len(gaps),
        "early": sum(value < 0 for value in late),
        "late_s": {"p50": late[len(late) // 2], "p99": late[int(0.99 * len(late))], "max": late[-1]},
    }
    print(json.dumps(found, indent=1))
    draw(gaps, IMAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
