"""Metrics: an observer that turns events into OpenTelemetry instruments, and gauges that are read when asked.

Only the OpenTelemetry API is used: without an SDK in the process all of this does nothing. `Metrics` lists
the names.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from postdate.clock import Clock, StorageClock
from postdate.events import (
    DelayedRetryAsked,
    DispatchFailed,
    Event,
    HandedOver,
    Handled,
    ImmediateRetryAsked,
    LeaseFailed,
    MessageDiscarded,
    MessageFailed,
    MovedToErrorQueue,
    PassFailed,
    Removed,
    Scheduled,
    TermBegan,
    TermEnded,
    TermLost,
)
from postdate.model.requests import RequestCounter

_Callback = Callable[[CallbackOptions], Iterable[Observation]]


@dataclass(frozen=True, eq=False)
class _Open:
    """An open endpoint, to be looked at when somebody asks for metrics."""

    attributes: dict[str, Any]
    clock: Clock
    requests: RequestCounter


class _NoProvider:
    """Stands for the provider of the whole process, whichever that will be."""


_NO_PROVIDER = _NoProvider()
#: The open endpoints of each provider. Of several observable instruments of one name an SDK asks the first
#: only, so that one has to tell of all endpoints.
_open: WeakKeyDictionary[object, list[_Open]] = WeakKeyDictionary()


class Metrics:
    """Counts what an endpoint does.

    postdate.scheduled      messages accepted, by path (row, queue, now)
    postdate.handed_over    messages put on their queues
    postdate.lateness       seconds after its due time that a message was handed over; 0 within the lookahead
    postdate.removed        rows deleted after hand-over
    postdate.dispatch_failures  failed dispatches, by whether they count as an attempt
    postdate.errors         messages moved to the error queue, by those who could not dispatch or handle them
    postdate.handled        messages that a handler is done with
    postdate.handling       seconds that handlers took
    postdate.discarded      messages that a policy dropped
    postdate.retries        failed attempts that are made again, by kind (immediate, delayed)
    postdate.leader         1 while this process leads
    postdate.storage_failures   lease calls and passes that failed
    postdate.storage.requests   requests to storage, retries too, by service, operation and outcome
    postdate.clock.offset       seconds that the storage service's clock is ahead of this machine's
    postdate.clock.uncertainty  seconds by which that offset may be wrong in all
    """

    def __init__(self, endpoint: str, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter("postdate", meter_provider=provider)
        self._endpoint = {"postdate.endpoint": endpoint}
        self._scheduled = meter.create_counter("postdate.scheduled", "{message}")
        self._handed_over = meter.create_counter("postdate.handed_over", "{message}")
        self._lateness = meter.create_histogram("postdate.lateness", "s")
        self._removed = meter.create_counter("postdate.removed", "{row}")
        self._failures = meter.create_counter("postdate.dispatch_failures", "{dispatch}")
        self._errors = meter.create_counter("postdate.errors", "{message}")
        self._handled = meter.create_counter("postdate.handled", "{message}")
        self._handling = meter.create_histogram("postdate.handling", "s")
        self._discarded = meter.create_counter("postdate.discarded", "{message}")
        self._retries = meter.create_counter("postdate.retries", "{attempt}")
        self._leader = meter.create_up_down_counter("postdate.leader", "1")
        self._storage = meter.create_counter("postdate.storage_failures", "{call}")
        self._open = _open.setdefault(provider or _NO_PROVIDER, [])
        meter.create_observable_counter("postdate.storage.requests", [_requests(self._open)], "{request}")
        meter.create_observable_gauge("postdate.clock.offset", [_offsets(self._open)], "s")
        meter.create_observable_gauge("postdate.clock.uncertainty", [_uncertainties(self._open)], "s")

    @contextmanager
    def watching(self, clock: Clock, requests: RequestCounter) -> Iterator[None]:
        """Tell of this clock and these requests meanwhile."""
        opened = _Open(self._endpoint, clock, requests)
        self._open.append(opened)
        try:
            yield
        finally:
            self._open.remove(opened)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Scheduled(path=path):
                self._scheduled.add(1, self._with(path=path))
            case HandedOver():
                late = (event.handed_over_at - event.due_at).total_seconds()
                self._handed_over.add(1, self._with(destination=event.destination))
                self._lateness.record(max(0.0, late), self._with(destination=event.destination))
            case Removed():
                self._removed.add(event.count, self._endpoint)
            case DispatchFailed():
                self._failures.add(1, self._with(counted=event.counted))
            case MovedToErrorQueue():
                self._errors.add(1, self._with(destination=event.destination))
            case TermBegan():
                self._leader.add(1, self._endpoint)
            case TermEnded() | TermLost():
                self._leader.add(-1, self._endpoint)
            case PassFailed():
                self._storage.add(1, self._with(what=event.name))
            case LeaseFailed():  # told at each power of two: as many as since it was told the last time
                self._storage.add(event.in_a_row - event.in_a_row // 2, self._with(what=event.name))
            case _:
                self._count_received(event)

    def _count_received(self, event: Event) -> None:
        match event:
            case Handled():
                self._handled.add(1, self._with(handler=event.handler))
                self._handling.record(event.seconds, self._with(handler=event.handler))
            case ImmediateRetryAsked():
                self._retries.add(1, self._with(kind="immediate"))
            case DelayedRetryAsked():
                self._retries.add(1, self._with(kind="delayed"))
            case MessageFailed():
                self._errors.add(1, self._with(destination=event.queue))
            case MessageDiscarded():
                self._discarded.add(1, self._with(destination=event.queue))
            case _:
                pass

    def _with(self, **attributes: Any) -> dict[str, Any]:
        return {**self._endpoint, **{f"postdate.{name}": value for name, value in attributes.items()}}


# An SDK asks from a thread of its own, hence the copies of the list.


def _requests(opened: list[_Open]) -> _Callback:
    def ask(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(
                count,
                {
                    **one.attributes,
                    "postdate.service": str(kind.service),
                    "postdate.operation": kind.operation,
                    "postdate.outcome": outcome.value,
                },
            )
            for one in opened.copy()
            for (kind, outcome), count in one.requests.counts().items()
        ]

    return ask


def _offsets(opened: list[_Open]) -> _Callback:
    def ask(_: CallbackOptions) -> Iterable[Observation]:
        known = [(one.clock.offset, one) for one in opened.copy() if isinstance(one.clock, StorageClock)]
        return [Observation(offset, one.attributes) for offset, one in known if offset is not None]

    return ask


def _uncertainties(opened: list[_Open]) -> _Callback:
    def ask(_: CallbackOptions) -> Iterable[Observation]:
        known = [(one.clock.uncertainty, one) for one in opened.copy()]
        return [Observation(seconds, one.attributes) for seconds, one in known if seconds is not None]

    return ask
