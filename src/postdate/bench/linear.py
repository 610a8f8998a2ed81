"""The time of one message at a thousand, ten thousand, a hundred thousand due rows, and whose time it is."""

from dataclasses import dataclass

from postdate import Endpoint
from postdate.bench.drain import drain_postdate
from postdate.bench.ground import Ground
from postdate.bench.limit import raw_put_seconds
from postdate.clock import SystemClock

_PUTS = 500
_PUTTING = 32


@dataclass(frozen=True, slots=True)
class Linear:
    """Microseconds of one message, by how many were due."""

    messages: int
    #: From the start to the last removal, divided by the messages.
    wall_us: float
    #: Processor time of our process: what grows here would be ours.
    client_cpu_us: float
    #: Processor time of the service: what grows here is its own scan.
    server_cpu_us: float
    #: A raw put on the account before, and with the messages of this run in it.
    put_before_us: float
    put_after_us: float
    #: Reading the first page, when all rows are there: the emulator looks at each of them.
    page_wall_us: float
    page_server_cpu_us: float


async def linear(ground: Ground, count: int) -> Linear:
    """Drain so many due rows."""
    clock = SystemClock()
    put_before = await raw_put_seconds(ground, _PUTS, _PUTTING)
    page: list[float] = []

    async def before(endpoint: Endpoint) -> None:
        cpu, began = ground.server_cpu(), clock.monotonic()
        async for _ in endpoint.parts.backend.store.due(clock.now()):
            break
        page.extend((clock.monotonic() - began, ground.server_cpu() - cpu))

    drained = await drain_postdate(ground, ground.settings, count, before=before)
    put_after = await raw_put_seconds(ground, _PUTS, _PUTTING)
    return Linear(
        messages=count,
        wall_us=drained.seconds_in_all / count * 1e6,
        client_cpu_us=drained.drain["client_cpu_us"],
        server_cpu_us=drained.drain["server_cpu_us"],
        put_before_us=put_before * 1e6,
        put_after_us=put_after * 1e6,
        page_wall_us=page[0] * 1e6,
        page_server_cpu_us=page[1] * 1e6,
    )
