"""The headers that say why a message lies in the error queue (nservicebus-azure, 1.5)."""

import traceback
from dataclasses import dataclass, field
from datetime import datetime

from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits
from postdate.model.error_text import without_secrets
from postdate.model.headers import Headers
from postdate.model.message import Message

_EXCEPTION_INFO = "NServiceBus.ExceptionInfo."
#: .NET cuts the exception's message here.
_MESSAGE_CHARACTERS = 16_384
_NOTES_CHARACTERS = 1_024
#: Of the message, within the trace.
_TRACED_CHARACTERS = 1_024
#: Stack traces are cut so that the copy fits; tried in this order.
_TRACE_CHARACTERS = (16_384, 2_048, 512, 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, where and when."""

    error: BaseException
    failed_queue: str
    failed_at: datetime
    attempts: int
    #: Who failed (`NServiceBus.ProcessingEndpoint`, ...), where a handler did.
    failed_by: Headers = field(default_factory=dict)


def with_fault(message: Message, fault: Fault) -> Message:
    """A copy of the message with fault headers, cut so that it still fits the error queue.

    Existing fault headers go: a message moved back by hand carries old ones. So do the retry headers: with
    them, a message that is returned to its queue days later would get no delayed retries. What looks like a
    secret in the error's text is left out.
    """
    error = fault.error
    trace = "".join(traceback.format_exception(error))
    whole = str(error)
    text = without_secrets(whole[:_MESSAGE_CHARACTERS])
    if len(whole) > _TRACED_CHARACTERS:  # or the trace would be nothing but the message
        half = _TRACED_CHARACTERS // 2
        trace = trace.replace(whole, f"{whole[:half]} … {whole[-half:]}")
    trace = without_secrets(trace)
    cause = error.__cause__ if error.__suppress_context__ else error.__context__
    kept = {
        k: v
        for k, v in message.headers.items()
        if not k.startswith(_EXCEPTION_INFO) and k not in h.RETRY_HEADERS
    }
    notes = without_secrets("\n".join(getattr(error, "__notes__", ())))[:_NOTES_CHARACTERS]
    copy = message
    for length in _TRACE_CHARACTERS:
        headers: Headers = {
            **kept,
            h.EXCEPTION_TYPE: _type_name(error),
            **({h.INNER_EXCEPTION_TYPE: _type_name(cause)} if cause is not None else {}),
            h.EXCEPTION_HELP_LINK: None,
            h.EXCEPTION_MESSAGE: text[: max(length, 256)],
            h.EXCEPTION_SOURCE: type(error).__module__.partition(".")[0],
            h.STACK_TRACE: trace[-length:] if length else "",
            h.TIME_OF_FAILURE: h.format_instant(fault.failed_at),
            h.FAILED_QUEUE: fault.failed_queue,
            h.ATTEMPTS: str(fault.attempts),
            **({f"{h.EXCEPTION_DATA}Notes": notes} if notes else {}),
            **fault.failed_by,
        }
        copy = Message(message.message_id, headers, message.body)
        if fits(copy, EnvelopeForm.NSERVICEBUS):
            break
    return copy


def _type_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
