"""Putting the receiver together, and refusing settings that contradict each other before anything moves."""

from typing import Protocol

from postdate.clock import Clock
from postdate.core.recoverability import RecoverabilityConfig
from postdate.core.slowdown import Slowdown
from postdate.engine.acceptance import Acceptance
from postdate.engine.attempt import Attempts
from postdate.engine.breakers import Breakers
from postdate.engine.context import ContextParts
from postdate.engine.fitting import Fitting
from postdate.engine.handlers import Handlers
from postdate.engine.handling import Handling, HandlingParts, HandlingSettings
from postdate.engine.held import Hold
from postdate.engine.intake import Intake
from postdate.engine.receiver import Receiver, ReceiverParts, ReceiverSettings
from postdate.engine.reception import Reception
from postdate.engine.recovery import Recovery
from postdate.engine.returning import Returning
from postdate.engine.stuck import Stuck
from postdate.engine.verdicts import Recoverability, Verdicts
from postdate.errors import ConfigurationError, DelayedDeliveryDisabled
from postdate.events import Events
from postdate.ports import Backend
from postdate.settings import Guarantee, Settings


class EndpointParts(Protocol):
    """Of an endpoint, what its receiver needs (`compose.Parts`)."""

    @property
    def settings(self) -> Settings:
        """Its settings."""
        ...

    @property
    def backend(self) -> Backend:
        """Where its tables and queues are."""
        ...

    @property
    def clock(self) -> Clock:
        """The storage service's clock."""
        ...

    @property
    def events(self) -> Events:
        """Whoever hears what happens."""
        ...

    @property
    def breakers(self) -> Breakers:
        """What tells when something is critical."""
        ...

    @property
    def intake(self) -> Intake:
        """What its handlers send goes out by it."""
        ...

    @property
    def acceptance(self) -> Acceptance:
        """What refuses a message that could not be dispatched."""
        ...

    @property
    def reception(self) -> Reception:
        """What opens received messages."""
        ...


def make_receiver(parts: EndpointParts, handlers: Handlers, recoverability: Recoverability) -> Receiver:
    """The receiver of one endpoint.

    Raises:
        ConfigurationError: the settings ask for retries that can't be.
    """
    settings, backend, clock, events = parts.settings, parts.backend, parts.clock, parts.events
    check_retries(settings)
    queue = settings.own_queue
    visibility_s = max(1, round(settings.visibility_timeout.total_seconds()))
    fitting = Fitting(backend.payloads, clock, settings.payload_retention)
    hold = Hold(backend, clock, events, visibility_s, fitting)
    config = RecoverabilityConfig(
        immediate_retries=settings.immediate_retries,
        delayed_retries=settings.delayed_retries,
        increase=settings.delayed_retry_increase,
        error_queue=settings.error_queue,
        interval_limit=settings.retry_interval_limit,
        age_limit=settings.retry_age_limit,
        unrecoverable=tuple(recoverability.unrecoverable),
        can_delay=not settings.disable_delayed_delivery,
        can_retry=settings.guarantee is not Guarantee.AT_MOST_ONCE,
        classifier=recoverability.classifier if settings.classify_errors else None,
    )
    ack_first = settings.guarantee is Guarantee.AT_MOST_ONCE
    slowdown = Slowdown(settings.rate_limit_after)
    stuck = Stuck(queue, settings.receive_concurrency, events, parts.breakers.critical)
    attempts = Attempts(clock, events, hold, timeout_s=settings.handler_timeout.total_seconds())
    returning = Returning(backend, clock, events, fitting, hold, parts.breakers.recovery)
    verdicts = Verdicts(clock, events, recoverability, config, endpoint=settings.endpoint, queue=queue)
    recovery = Recovery(backend, clock, events, verdicts, fitting, hold, returning)
    handling = Handling(
        HandlingParts(
            clock=clock,
            events=events,
            queues=backend.receiver,
            reception=parts.reception,
            intake=parts.intake,
            handlers=handlers,
            attempts=attempts,
            hold=hold,
            recovery=recovery,
            returning=returning,
            context=ContextParts(
                clock=clock,
                acceptance=parts.acceptance,
                endpoint=settings.endpoint,
                queue=queue,
                need_delays=lambda: need_delays(settings),
            ),
            slowdown=slowdown,
            stuck=stuck,
        ),
        HandlingSettings(
            queue=queue,
            immediate_retries=settings.immediate_retries,
            slow_after=settings.rate_limit_after,
            slow_pause_s=settings.rate_limit_pause.total_seconds(),
            ack_first=ack_first,
        ),
    )
    return Receiver(
        ReceiverParts(
            clock=clock,
            events=events,
            breaker=parts.breakers.receive,
            queues=backend.receiver,
            hold=hold,
            handling=handling,
            slowdown=slowdown,
            stuck=stuck,
        ),
        ReceiverSettings(
            queue=queue,
            batch=settings.receive_batch,
            concurrency=settings.receive_concurrency,
            visibility_s=visibility_s,
            idle_s=settings.receive_idle_interval.total_seconds(),
            grace_s=settings.stop_grace.total_seconds(),
            slow_pause_s=settings.rate_limit_pause.total_seconds(),
        ),
    )


def check_retries(settings: Settings) -> None:
    """Refuse retries that the other settings rule out.

    Raises:
        ConfigurationError: which setting, and what to do.
    """
    if settings.guarantee is Guarantee.AT_MOST_ONCE and (
        settings.immediate_retries or settings.delayed_retries
    ):
        numbers = {
            "POSTDATE_IMMEDIATE_RETRIES": settings.immediate_retries,
            "POSTDATE_DELAYED_RETRIES": settings.delayed_retries,
        }
        wrong = " and ".join(f"{name}=0 (it is {number})" for name, number in numbers.items() if number)
        raise ConfigurationError(
            "with POSTDATE_GUARANTEE=at_most_once a message is gone before its handler begins, so nothing "
            f"can be retried: set {wrong}, or use at_least_once"
        )
    if settings.disable_delayed_delivery and settings.delayed_retries:
        raise ConfigurationError(
            f"POSTDATE_DELAYED_RETRIES is {settings.delayed_retries}, and delayed delivery is switched off: "
            "set POSTDATE_DELAYED_RETRIES=0, or unset POSTDATE_DISABLE_DELAYED_DELIVERY"
        )


def need_delays(settings: Settings) -> None:
    """Refuse what needs delayed delivery where it is off.

    Raises:
        DelayedDeliveryDisabled: the toggle is on.
    """
    if settings.disable_delayed_delivery:
        raise DelayedDeliveryDisabled(
            f"delayed delivery of endpoint {settings.endpoint!r} is switched off "
            "(POSTDATE_DISABLE_DELAYED_DELIVERY); unset it, or use send()"
        )
