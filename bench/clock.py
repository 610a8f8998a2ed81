"""How well a process knows the service's clock, second by second, on a real Azurite.

    python -m bench.clock

A leader asks at chosen instants; beside it, a process that asks at random, as often. Writes
docs/images/clock.png and prints the figures.
"""

import asyncio
import time
from pathlib import Path
from random import Random

from bench.canvas import pyplot, save
from postdate import Endpoint
from postdate.clock import SystemClock, wait_for
from postdate.local import Azurite
from postdate.settings import load_settings

ENDPOINT = "bench-clock"
SECONDS = 30.0
SAMPLE_SECONDS = 0.05
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "clock.png"

#: Seconds since the start, uncertainty in seconds, error of the earliest reading in seconds (0 or less).
Sample = tuple[float, float, float]


async def watch(endpoint: Endpoint, began: float) -> list[Sample]:
    """What the endpoint's clock says of itself, beside the truth: here the service runs on this machine."""
    samples: list[Sample] = []
    clock = endpoint.parts.clock
    while (elapsed := time.monotonic() - began) < SECONDS:
        uncertainty = clock.uncertainty
        if uncertainty is not None:
            error = (clock.now() - SystemClock().now()).total_seconds()
            samples.append((elapsed, uncertainty, error))
        await asyncio.sleep(SAMPLE_SECONDS)
    return samples


async def set_up(connection: str) -> None:
    """The table, by a process of its own: those that are watched begin with knowing nothing."""
    async with Endpoint(load_settings(endpoint=ENDPOINT, connection=connection)) as endpoint:
        await endpoint.setup()


async def lead(connection: str) -> list[Sample]:
    """A leader, which times its renewals."""
    stop = asyncio.Event()
    async with Endpoint(load_settings(endpoint=ENDPOINT, connection=connection)) as endpoint:
        running = asyncio.create_task(endpoint.run(stop))
        samples = await watch(endpoint, time.monotonic())
        stop.set()
        await running
    return samples


async def ask_at_random(connection: str) -> list[Sample]:
    """About one request a second, whenever."""
    random, over = Random(1), asyncio.Event()
    async with Endpoint(load_settings(endpoint=ENDPOINT, connection=connection)) as endpoint:

        async def ask() -> None:
            while not await wait_for(over, random.expovariate(1.0), SystemClock()):
                await endpoint.parts.backend.store.next_due()

        asking = asyncio.create_task(ask())
        samples = await watch(endpoint, time.monotonic())
        over.set()
        await asking
    return samples


def draw(curves: dict[str, list[Sample]]) -> None:
    plt = pyplot()

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for name, samples in curves.items():
        axes.plot([at for at, _, _ in samples], [width * 1000 for _, width, _ in samples], label=name)
    axes.set_yscale("log")
    axes.set_xlabel("seconds since it began")
    axes.set_ylabel("uncertainty, ms")
    axes.set_title("How well the service's clock is known, from Date headers of whole seconds")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    save(figure, PICTURE)


def main() -> None:
    with Azurite() as azurite:
        asyncio.run(set_up(azurite.connection_string))
        curves = {
            "a leader, which times its renewals": asyncio.run(lead(azurite.connection_string)),
            "a request a second, at random": asyncio.run(ask_at_random(azurite.connection_string)),
        }
    for name, samples in curves.items():
        at_ten = next(width for at, width, _ in samples if at >= 10)
        print(
            f"{name}: {at_ten * 1000:.0f} ms after 10 s, {samples[-1][1] * 1000:.0f} ms after {SECONDS:g} s"
        )
        # now() is the earliest reading: never ahead of the truth, and behind by no more than is admitted.
        wrong = sum(not -width - 0.001 <= error <= 0.001 for _, width, error in samples)
        print(f"  readings outside of what it admits: {wrong} of {len(samples)}")
    draw(curves)


if __name__ == "__main__":
    main()
