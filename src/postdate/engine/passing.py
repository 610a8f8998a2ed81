"""Passes put together from an endpoint's settings: for its leader, and for the processes that help one."""

from postdate.clock import Clock
from postdate.engine.authority import Authority
from postdate.engine.breakers import Breakers
from postdate.engine.dispatcher import Dispatcher, DispatchSettings
from postdate.engine.gate import Gate
from postdate.engine.handover import HandOverTo
from postdate.engine.passes import Passes, PassSettings
from postdate.events import Events
from postdate.ports import Backend
from postdate.settings import Guarantee, Settings


def make_passes(
    settings: Settings,
    backend: Backend,
    clock: Clock,
    events: Events,
    authority: Authority,
    breakers: Breakers,
    *,
    timed: bool = True,
) -> Passes:
    """Passes over the rows of `backend.store`, as long as `authority` allows; see `PassSettings.timed`."""
    removed_first = settings.guarantee is Guarantee.AT_MOST_ONCE
    gate = Gate(settings.send_concurrency, events, clock)
    dispatcher = Dispatcher(
        backend,
        clock,
        events,
        HandOverTo(backend.sender, clock, settings.envelope_form),
        breakers,
        DispatchSettings(
            error_queue=settings.error_queue,
            number_of_retries=settings.number_of_retries,
            retry_base=settings.retry_base,
            retry_maximum=settings.retry_maximum,
            payload_retention=settings.payload_retention,
            removed_first=removed_first,
        ),
        on_busy=gate.throttled,
    )
    return Passes(
        backend,
        clock,
        events,
        authority,
        dispatcher,
        gate,
        breakers,
        PassSettings(
            lookahead=settings.lookahead,
            unremoved_limit=settings.unremoved_limit,
            removed_first=removed_first,
            timed=timed,
        ),
    )
