"""Deciding what becomes of a failed message: the user's policy, asked safely."""

import platform
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.core.classify import Classifier
from postdate.engine.reception import Delivery
from postdate.errors import UsageError
from postdate.events import Events, PolicyFailed
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits
from postdate.model.error_text import line_of
from postdate.model.faults import Fault, with_fault
from postdate.model.headers import Headers
from postdate.model.inbox import with_first_instant
from postdate.model.message import Message, check_headers

#: Of the host's id, which is made of its name.
_NAMESPACE = uuid.UUID("0c7a1f52-2f1c-4c0e-8a53-5f9b1c2d7e64")
#: Of a verdict that has no room: these headers, or the first three; so many characters of each.
_LEAST = (h.FAILED_QUEUE, h.EXCEPTION_TYPE, h.ATTEMPTS, h.EXCEPTION_MESSAGE, h.TIME_OF_FAILURE)
_LEAST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Recoverability:
    """What an endpoint does when a handler fails, beside the numbers in its settings.

    policy: decides; wrap `default_policy` to change single cases.
    unrecoverable: exception types that go to the error queue at once.
    classifier: tells apart what a retry can help; add rules of your own to it. Not asked where
        POSTDATE_CLASSIFY_ERRORS is off.
    fault_headers: sees, and may change, the headers of a copy for the error queue.
    """

    policy: r.Policy = r.default_policy
    unrecoverable: tuple[type[BaseException], ...] = ()
    classifier: Classifier = field(default_factory=Classifier)
    fault_headers: Callable[[Headers, BaseException], None] | None = None


class Verdicts:
    """Asks the policy, and writes down why."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        recoverability: Recoverability,
        config: r.RecoverabilityConfig,
        *,
        endpoint: str,
        queue: str,
    ) -> None:
        self._clock = clock
        self._events = events
        self._recoverability = recoverability
        self._config = config
        self._endpoint = endpoint
        self._queue = queue

    def context(self, delivery: Delivery, error: BaseException) -> r.ErrorContext:
        """One failure, as policies see it: headers and body as received."""
        failures = r.failures_now(delivery.dequeue_count, delivery.headers)
        return r.ErrorContext(
            error=error,
            message_id=delivery.message_id,
            native_id=delivery.received.native_id,
            headers=dict(delivery.headers),
            body=delivery.body,
            receive_address=self._queue,
            immediate_failures=failures,
            delayed_retries=r.retries_done(delivery.headers),
            attempts=r.attempts_before(delivery.headers) + failures,
            now=self._clock.now(),
        )

    def decide(self, context: r.ErrorContext) -> r.Action:
        """The policy's action; the default's where the policy fails, so that one bad line stops nobody."""
        try:
            action = self._recoverability.policy(self._config, context)
            if not isinstance(action, r.ImmediateRetry | r.DelayedRetry | r.MoveToError | r.Discard):
                raise UsageError(f"the policy returned {action!r}, which is no action")
        except Exception as failure:  # noqa: BLE001 - anybody's code
            self._events.emit(PolicyFailed(context.message_id, line_of(failure)))
            # The users' types and rules may be what failed.
            plain = replace(self._config, classifier=None, unrecoverable=())
            action = r.default_policy(plain, context)
        why_not = self._why_not(action)
        if why_not is None:
            return action
        self._events.emit(PolicyFailed(context.message_id, f"{why_not}: the message goes to the error queue"))
        return r.MoveToError()

    def _why_not(self, action: r.Action) -> str | None:
        """Why the settings rule an action out (recoverability, section 6); None: they don't."""
        if isinstance(action, r.ImmediateRetry | r.DelayedRetry) and not self._config.can_retry:
            return "a retry was asked for, and with at_most_once the message is acknowledged already"
        if isinstance(action, r.DelayedRetry) and not self._config.can_delay:
            return "a delayed retry was asked for, and delayed delivery is switched off"
        return None

    def error_queue(self, action: r.MoveToError) -> str:
        """Where the action moves to."""
        return action.queue or self._config.error_queue

    @property
    def own_error_queue(self) -> str:
        """The endpoint's error queue."""
        return self._config.error_queue

    def faulty(self, delivery: Delivery, context: r.ErrorContext) -> Message:
        """A copy for the error queue, with every fault header (recoverability, section 5)."""
        fault = Fault(
            context.error,
            self._queue,
            context.now,
            context.attempts,
            failed_by={
                h.PROCESSING_ENDPOINT: self._endpoint,
                h.PROCESSING_MACHINE: platform.node(),
                h.HOST_ID: uuid.uuid5(_NAMESPACE, platform.node()).hex,
                h.HOST_NAME: platform.node(),
            },
        )
        # Whoever sends it back inserts it anew, and inboxes have to know it all the same.
        headers = with_first_instant(delivery.headers, delivery.received.inserted_at)
        copy = with_fault(replace(delivery.message, headers=headers), fault)
        if self._recoverability.fault_headers is None:
            return copy
        headers = dict(copy.headers)
        try:
            self._recoverability.fault_headers(headers, context.error)
            headers = check_headers(headers)
        except Exception as failure:  # noqa: BLE001 - anybody's code
            self._events.emit(PolicyFailed(context.message_id, f"fault_headers: {line_of(failure)}"))
            return copy
        return Message(copy.message_id, headers, copy.body)


def with_verdict(delivery: Delivery, copy: Message, queue: str) -> Message:
    """The message with its verdict, as much of it as fits, so that its handler is not asked again."""
    whole = replace(copy, headers={**copy.headers, h.CONDEMNED: queue})
    if fits(whole, EnvelopeForm.NSERVICEBUS):
        return whole
    for names in (_LEAST, _LEAST[:3], ()):
        least = {name: (copy.headers.get(name) or "")[:_LEAST_CHARACTERS] for name in names}
        whole = replace(delivery.message, headers={**delivery.message.headers, **least, h.CONDEMNED: queue})
        if fits(whole, EnvelopeForm.NSERVICEBUS):
            break
    return whole
