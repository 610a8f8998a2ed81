"""Metrics: an observer that turns events into OpenTelemetry instruments.

Only the OpenTelemetry API is used: without an SDK in the process all of this does nothing. Names and units
are listed in docs/reference/events.md beside the events that they count.
"""

from typing import Any

from opentelemetry import metrics

from postdate.events import (
    DispatchFailed,
    Event,
    HandedOver,
    LeaseFailed,
    MovedToErrorQueue,
    PassFailed,
    Removed,
    Scheduled,
    TermBegan,
    TermEnded,
    TermLost,
)


class Metrics:
    """Counts what an endpoint does.

    postdate.scheduled      messages accepted, by path (row, queue, now)
    postdate.handed_over    messages put on their queues
    postdate.lateness       seconds after its due time that a message was handed over; 0 within the lookahead
    postdate.removed        rows deleted after hand-over
    postdate.dispatch_failures  failed dispatches, by whether they count as an attempt
    postdate.errors         messages moved to the error queue
    postdate.leader         1 while this process leads
    postdate.storage_failures   lease calls and passes that failed
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
        self._leader = meter.create_up_down_counter("postdate.leader", "1")
        self._storage = meter.create_counter("postdate.storage_failures", "{call}")

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
            case LeaseFailed() | PassFailed():
                self._storage.add(1, self._with(what=event.name))
            case _:
                pass

    def _with(self, **attributes: Any) -> dict[str, Any]:
        return {**self._endpoint, **{f"postdate.{name}": value for name, value in attributes.items()}}
