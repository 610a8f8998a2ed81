"""Settings to running parts: the only module that sees both the engine and the backends.

The backend is imported when it is chosen, so that nobody pays for a cloud library they do not use.
"""

import os
import platform
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from postdate.backends.own_store import WithOwnStore, with_own_store
from postdate.clock import Clock, StorageClock, SystemClock
from postdate.core.rest import slack_of
from postdate.engine.acceptance import Acceptance, AcceptanceSettings
from postdate.engine.accountant import Accountant
from postdate.engine.breakers import Breakers, OnCriticalError
from postdate.engine.bulk import BulkIntake
from postdate.engine.changes import Changes
from postdate.engine.delivery_log import keeping_log
from postdate.engine.destinations import Destinations
from postdate.engine.elector import Elector
from postdate.engine.gate import Gate
from postdate.engine.handover import HandOverTo
from postdate.engine.intake import DirectHandles, Intake, IntakeSettings
from postdate.engine.lookup import Lookup
from postdate.engine.passing import make_passes
from postdate.engine.poller import Poller, PollSettings
from postdate.engine.reception import Reception
from postdate.engine.service import Service
from postdate.engine.sweeper import Sweeper
from postdate.events import Events, Observer, log_event
from postdate.legacy.ground import Ground
from postdate.legacy.judge import Judge
from postdate.legacy.manager import ManagerSettings, TimeoutManager
from postdate.legacy.migration import Migration
from postdate.model.date_patterns import partition_scope
from postdate.model.prices import PriceTable
from postdate.ports import Backend, DelayedStore
from postdate.settings import BackendName, LargeBodies, Settings, load_prices
from postdate.telemetry import Metrics

if TYPE_CHECKING:
    from postdate.backends.azure_storage.clients import WrapTransport
    from postdate.backends.memory import MemoryAccount


@dataclass(frozen=True, slots=True)
class Parts:
    """One endpoint, put together."""

    settings: Settings
    clock: Clock
    backend: Backend
    events: Events
    acceptance: Acceptance
    intake: Intake
    bulk: BulkIntake
    changes: Changes
    lookup: Lookup
    reception: Reception
    elector: Elector
    service: Service
    sweeper: Sweeper
    prices: PriceTable
    accountant: Accountant
    breakers: Breakers
    timeouts: TimeoutManager | None
    migration: Migration


@asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    clock: Clock | None = None,
    observers: Iterable[Observer] = (),
    memory: "MemoryAccount | None" = None,
    wrap_transport: "WrapTransport | None" = None,
    store: DelayedStore | None = None,
    on_critical_error: OnCriticalError | None = None,
) -> AsyncIterator[Parts]:
    """Open the backend that the settings name, and everything on top of it.

    Args:
        settings: of the endpoint.
        clock: the local clock; default: the system's. Tests bring a virtual one.
        observers: told of every event, beside the log.
        memory: the account to use with the memory backend, to share it between endpoints.
        wrap_transport: puts something between us and the storage account's network, to watch it.
        store: a delayed store of your own in place of the table, open; you close it.
        on_critical_error: told when a part of the endpoint has failed for too long.

    Raises:
        ConfigurationError: no storage account is configured, the settings contradict each other, or the store
            that they name can't be made.
    """
    local = clock or SystemClock()
    metrics = Metrics(settings.endpoint)
    events = Events([log_event, metrics, *observers])
    table = settings.table_name
    account: Backend
    judge: Clock
    if settings.backend is BackendName.MEMORY:
        from postdate.backends.memory import MemoryAccount, MemoryBackend  # noqa: PLC0415 - late

        judge = local
        account = MemoryBackend(
            memory or MemoryAccount(),
            table,
            judge,
            frozenset(settings.alias_accounts()),
            settings.timeout_places,
            settings.inbox_table_name,
        )
    else:
        from postdate.backends.azure_storage.backend import open_backend  # noqa: PLC0415 - late

        judge = storage_clock = StorageClock(local)
        account = await open_backend(settings, storage_clock, wrap_transport=wrap_transport)
    try:
        async with with_own_store(account, settings, store) as backend:
            parts = put_together(settings, backend, judge, events, on_critical_error)
            async with keeping_log(settings, backend, judge, events, parts.elector.holder):
                with metrics.watching(judge, backend.requests):
                    try:
                        yield parts
                    finally:
                        await parts.breakers.close()
                        parts.accountant.tell()
    finally:
        await account.close()


def put_together(
    settings: Settings,
    backend: Backend,
    clock: Clock,
    events: Events,
    on_critical_error: OnCriticalError | None = None,
) -> Parts:
    """The parts of one endpoint on an open backend (your own, for example)."""
    hand_over = HandOverTo(backend.sender, clock, settings.envelope_form)
    breakers = Breakers(
        settings,
        clock,
        events,
        longest_back_off=settings.retry_maximum,
        on_critical_error=on_critical_error,
    )
    elector = Elector(
        backend.lease,
        clock,
        events,
        holder=process_name(),
        lease_seconds=round(settings.lease_duration.total_seconds()),
        lookahead_seconds=settings.lookahead.total_seconds(),
        probe_seconds=settings.probe_interval.total_seconds(),
        uncertainty_limit=settings.clock_uncertainty_limit.total_seconds(),
        breaker=breakers.lease,
    )
    takeover = settings.lease_duration + settings.probe_interval
    passes = make_passes(settings, backend, clock, events, elector, breakers)
    poller = Poller(
        clock,
        events,
        elector,
        passes,
        breakers.fetch,
        PollSettings(
            lookahead=settings.lookahead,
            slack=slack_of(settings.lookahead, takeover=takeover),
            direct_limit=settings.direct_limit,
            idle_interval=settings.idle_interval,
            takeover=takeover,
        ),
    )
    direct = DirectHandles()
    acceptance = Acceptance(
        AcceptanceSettings(
            endpoint=settings.endpoint,
            reply_to=settings.queue,
            claim_check=settings.large_bodies is LargeBodies.CLAIM_CHECK,
            envelope_form=settings.envelope_form,
        )
    )
    destinations = Destinations(backend.sender, clock)
    intake = Intake(
        backend,
        clock,
        events,
        hand_over,
        acceptance,
        destinations,
        IntakeSettings(
            direct_within=settings.direct_limit,
            payload_retention=settings.payload_retention,
            check_destinations=settings.check_destinations,
        ),
        direct=direct,
        wake=poller.wake,
        breaker=breakers.store,
    )
    bulk = BulkIntake(
        intake,
        clock,
        Gate(settings.send_concurrency, events, clock),
        sends_at_once=settings.send_concurrency,
    )
    changes = Changes(
        backend,
        clock,
        events,
        hand_over,
        direct=direct,
        lookahead=settings.lookahead,
        direct_within=settings.direct_limit,
        payload_retention=settings.payload_retention,
    )
    reception = Reception(
        backend,
        clock,
        events,
        error_queue=settings.error_queue,
        visibility=settings.visibility_timeout,
        batch=settings.receive_batch,
        payload_retention=settings.payload_retention,
    )
    judge = Judge(acceptance, destinations if settings.check_destinations else None)
    ground = Ground(
        backend=backend,
        clock=clock,
        events=events,
        judge=judge,
        reach=changes.reach,
        endpoint=settings.endpoint,
        table=settings.table_name,
        payload_retention=settings.payload_retention,
        scope=partition_scope(settings.timeout_partition_scope),
    )
    prices = load_prices(settings.prices)
    accountant = Accountant(backend.requests, clock, events, prices)
    sweeper = Sweeper(backend.payloads, clock, events)
    timeouts = _timeout_manager(settings, backend, elector, hand_over, breakers)
    return Parts(
        settings=settings,
        clock=clock,
        backend=backend,
        events=events,
        acceptance=acceptance,
        intake=intake,
        bulk=bulk,
        changes=changes,
        lookup=Lookup(backend),
        reception=reception,
        elector=elector,
        service=Service(
            elector, poller, passes, sweeper, accountant, [timeouts] if timeouts is not None else []
        ),
        sweeper=sweeper,
        prices=prices,
        accountant=accountant,
        breakers=breakers,
        timeouts=timeouts,
        migration=Migration(ground, settings.timeout_queues),
    )


def _timeout_manager(
    settings: Settings,
    backend: Backend,
    elector: Elector,
    hand_over: HandOverTo,
    breakers: Breakers,
) -> TimeoutManager | None:
    """What serves older instances' timeouts.

    None: it is switched off; there is no name to find them by; or a store of the user's own stands in place
    of the table, and nothing else needs the account's table service.
    """
    if settings.disable_timeout_manager or not settings.endpoint or isinstance(backend, WithOwnStore):
        return None

    def critical(name: str, error: Exception, since: datetime) -> None:
        breakers.critical(name, "Failed to look for timeouts of older instances", error, since)

    return TimeoutManager(
        backend,
        breakers.clock,
        breakers.events,
        elector,
        hand_over,
        ManagerSettings(
            endpoint=settings.endpoint,
            queues=settings.timeout_queues,
            error_queue=settings.error_queue,
            lookahead=settings.lookahead,
            outage_limit=settings.timeout_outage_limit,
            visibility=settings.visibility_timeout,
            payload_retention=settings.payload_retention,
        ),
        on_critical=critical,
    )


def process_name() -> str:
    """This process, for people who look at who leads: host, process id, and a few digits of chance."""
    return f"{platform.node()}/{os.getpid()}/{uuid.uuid4().hex[:6]}"
