"""The demo from end to end: a storage service, three processes, a sender, a consumer, and a killed leader."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from pydantic import SecretStr

from postdate import Endpoint, Settings
from postdate.demo.actors import DOOMED_QUEUE, Sender, collect_failures, consume
from postdate.demo.fleet import PROCESSES, Fleet
from postdate.demo.ledger import Ledger, percentile
from postdate.demo.scenario import LOOKAHEAD, Scenario, write_scenario
from postdate.demo.summary import Summary, sum_up
from postdate.errors import UsageError
from postdate.local import Azurite
from postdate.settings import BackendName

FEWEST_MESSAGES = 10
SHORTEST_RUN = 10.0
#: Seconds that the processes get until the first leads.
_START_SECONDS = 60.0
#: Seconds after which what is missing counts as lost, beyond the last due time and a take-over.
_PATIENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """How large, how long."""

    messages: int = 1000
    #: From the first message to the last due time, roughly.
    seconds: float = 60.0
    lookahead: timedelta | None = None
    lease: timedelta = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How it stands, for the live view."""

    phase: str
    elapsed_s: float = 0.0
    leader: str | None = None
    term: int | None = None
    scheduled: int = 0
    #: Rows that wait in the table.
    waiting: int = 0
    handed_over: int = 0
    delivered: int = 0
    lateness_p50_s: float | None = None
    lateness_max_s: float | None = None
    killed_pid: int | None = None
    takeover_s: float | None = None


Watch = Callable[[Snapshot], None]


async def play(options: Options, watch: Watch) -> Summary:
    """Run the demo; `watch` hears how it stands, twice a second.

    Leaves neither a process nor a folder, also when it is cancelled.

    Raises:
        UsageError: too few messages, or too short.
        PostdateError: Azurite or a process did not start, or a message was not accepted.
    """
    if options.messages < FEWEST_MESSAGES or not options.seconds >= SHORTEST_RUN:
        raise UsageError(f"the demo needs at least {FEWEST_MESSAGES} messages and {SHORTEST_RUN:g} seconds")
    watch(Snapshot("starting Azurite"))
    async with Azurite() as azurite:
        settings = settings_for(options, azurite.connection_string)
        ledger = Ledger()
        async with Endpoint(settings, observers=[ledger.observe]) as endpoint:
            await endpoint.setup(settings.own_queue, DOOMED_QUEUE)
            async with Fleet(settings) as fleet:
                watch(Snapshot(f"starting {PROCESSES} processes"))
                await fleet.until_led(_START_SECONDS)
                seconds = await _Show(options, endpoint, fleet, ledger, watch).run()
                await fleet.stop()
            return sum_up(ledger, fleet, settings, seconds)


def settings_for(options: Options, connection: str) -> Settings:
    """The endpoint's settings; neither the environment nor a settings file has a say."""
    values = {
        name: setting.get_default(call_default_factory=True)
        for name, setting in Settings.model_fields.items()
    }
    values |= {
        "endpoint": "postdate-demo",
        "backend": BackendName.AZURE_STORAGE,
        "connection": SecretStr(connection),
        "lookahead": timedelta(seconds=options.seconds * LOOKAHEAD),
        "lease_duration": options.lease,
        # The sender is another process, so a leader learns of a row when it looks: often enough that a
        # take-over still fits into the lookahead.
        "idle_interval": timedelta(seconds=1),
        # The doomed message shall reach the error queue within the run.
        "number_of_retries": 3,
        "retry_base": timedelta(seconds=0.5),
    }
    if options.lookahead is not None:
        values["lookahead"] = options.lookahead
    # Every delay above the lookahead shall be a row, or there would be hardly any in so short a run.
    values["direct_within"] = values["lookahead"]
    return Settings(**values)


class _Show:
    """What happens between the first leader and the last message."""

    def __init__(
        self, options: Options, endpoint: Endpoint, fleet: Fleet, ledger: Ledger, watch: Watch
    ) -> None:
        self._endpoint = endpoint
        self._fleet = fleet
        self._ledger = ledger
        self._watch = watch
        self._clock = endpoint.parts.clock
        lookahead = endpoint.settings.lookahead.total_seconds()
        self._scenario: Scenario = write_scenario(options.messages, options.seconds, lookahead)
        self._sent = False

    async def run(self) -> float:
        """Send, kill, receive, check; the seconds that it took."""
        began = self._clock.monotonic()
        self._fleet.kill_leader_after(max(1, self._scenario.rows // 2))
        async with asyncio.TaskGroup() as actors:
            watching = [
                actors.create_task(consume(self._endpoint, self._ledger)),
                actors.create_task(collect_failures(self._endpoint, self._ledger)),
            ]
            sending = actors.create_task(Sender(self._endpoint, self._scenario, self._ledger).run())
            await self._until_done(began, sending)
            for task in watching:
                task.cancel()
        return self._clock.monotonic() - began

    async def _until_done(self, began: float, sending: "asyncio.Task[None]") -> None:
        quiet = 0
        while quiet < 2 and not self._overdue(began):
            await self._clock.sleep(_LOOK_SECONDS)
            self._fleet.check()
            waiting = await self._waiting()
            await self._tell(began, waiting, sending=not sending.done())
            if not sending.done():
                continue
            if not waiting:
                # Too few rows ever came together (a long lookahead): the leader dies idle.
                self._fleet.kill_leader_now()
            # What is missing when nothing waits and nothing is queued will never come.
            empty = not waiting and not await self._queued() and self._fleet.takeover_s is not None
            quiet = quiet + 1 if empty else 0

    def _overdue(self, began: float) -> bool:
        lease = self._endpoint.settings.lease_duration.total_seconds()
        last = max(began + self._scenario.ends_at, self._fleet.killed_at or 0.0) + lease
        return self._clock.monotonic() > last + _PATIENCE_SECONDS

    async def _waiting(self) -> int:
        return sum([1 async for _ in self._endpoint.upcoming()])

    async def _queued(self) -> int:
        settings, sender = self._endpoint.settings, self._endpoint.parts.backend.sender
        return await sender.approximate_count(settings.own_queue) + await sender.approximate_count(
            settings.error_queue
        )

    async def _tell(self, began: float, waiting: int, *, sending: bool) -> None:
        record = await self._endpoint.parts.backend.lease.holder()
        lateness = self._ledger.lateness()
        self._watch(
            Snapshot(
                phase="scheduling and delivering" if sending else "delivering",
                elapsed_s=self._clock.monotonic() - began,
                leader=record.holder if record is not None and record.leased else None,
                term=record.term if record is not None else None,
                scheduled=len(self._ledger.promises),
                waiting=waiting,
                handed_over=self._fleet.handed_over,
                delivered=self._ledger.delivered,
                lateness_p50_s=percentile(lateness, 0.5),
                lateness_max_s=percentile(lateness, 1.0),
                killed_pid=self._fleet.killed.pid if self._fleet.killed else None,
                takeover_s=self._fleet.takeover_s,
            )
        )
