"""Header names and the two text forms that headers carry: instants and spans.

Names and forms are those of NServiceBus (nservicebus-azure, section 3), so that .NET endpoints and ours
read each other's messages. `Postdate.*` headers are ours; .NET endpoints pass them along.
"""

import re
from datetime import UTC, datetime, timedelta

from postdate.errors import UsageError, shown

MESSAGE_ID = "NServiceBus.MessageId"
CORRELATION_ID = "NServiceBus.CorrelationId"
CONVERSATION_ID = "NServiceBus.ConversationId"
MESSAGE_INTENT = "NServiceBus.MessageIntent"
REPLY_TO = "NServiceBus.ReplyToAddress"
CONTENT_TYPE = "NServiceBus.ContentType"
ENCLOSED_TYPES = "NServiceBus.EnclosedMessageTypes"
ORIGINATING_ENDPOINT = "NServiceBus.OriginatingEndpoint"
ORIGINATING_MACHINE = "NServiceBus.OriginatingMachine"
TIME_SENT = "NServiceBus.TimeSent"
DELIVER_AT = "NServiceBus.DeliverAt"
TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"
RELATED_TO = "NServiceBus.RelatedTo"
VERSION = "NServiceBus.Version"
CONTROL_MESSAGE = "NServiceBus.ControlMessage"

#: Delayed retries done so far, absent before the first; and when the last of them was scheduled.
RETRIES = "NServiceBus.Retries"
RETRIES_TIMESTAMP = "NServiceBus.Retries.Timestamp"
#: Immediate retries, as endpoints of old counted them.
FL_RETRIES = "NServiceBus.FLRetries"

SAGA_ID = "NServiceBus.SagaId"
SAGA_TYPE = "NServiceBus.SagaType"
ORIGINATING_SAGA_ID = "NServiceBus.OriginatingSagaId"
ORIGINATING_SAGA_TYPE = "NServiceBus.OriginatingSagaType"
#: Its presence makes a message a saga's timeout.
IS_SAGA_TIMEOUT = "NServiceBus.IsSagaTimeoutMessage"

#: Of the legacy timeout manager (nservicebus-azure, section 4).
TIMEOUT_EXPIRE = "NServiceBus.Timeout.Expire"
TIMEOUT_DESTINATION = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
CLEAR_TIMEOUTS = "NServiceBus.ClearTimeouts"
RELATED_TO_TIMEOUT = "NServiceBus.RelatedToTimeoutId"
#: Literally so, without the prefix.
TIMEOUT_ID = "Timeout.Id"

FAILED_QUEUE = "NServiceBus.FailedQ"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.ExceptionType"
INNER_EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.InnerExceptionType"
EXCEPTION_HELP_LINK = "NServiceBus.ExceptionInfo.HelpLink"
EXCEPTION_MESSAGE = "NServiceBus.ExceptionInfo.Message"
EXCEPTION_SOURCE = "NServiceBus.ExceptionInfo.Source"
STACK_TRACE = "NServiceBus.ExceptionInfo.StackTrace"
EXCEPTION_DATA = "NServiceBus.ExceptionInfo.Data."
PROCESSING_ENDPOINT = "NServiceBus.ProcessingEndpoint"
PROCESSING_MACHINE = "NServiceBus.ProcessingMachine"
HOST_ID = "$.diagnostics.hostid"
HOST_NAME = "$.diagnostics.hostdisplayname"

#: The leader's term that handed the message over: the fencing token that consumers may check.
TERM = "Postdate.Term"
#: Where the body lies when it was too large for the queue: the name of a blob (claim check).
PAYLOAD = "Postdate.Payload"
#: How often dispatch, or handling, was tried before the message went to the error queue.
ATTEMPTS = "Postdate.Attempts"
#: Times that the service handed the message out and nobody tried to handle it: not failures.
UNCOUNTED = "Postdate.Uncounted"
#: The queue that a message is to be moved to: decided, and not done because that queue was not to be reached.
CONDEMNED = "Postdate.MoveTo"

#: A delayed retry longer than a queue can hide: not to be handled before this instant.
NOT_BEFORE = "Postdate.NotBefore"

#: What a message must not carry into a new life: with them it would have fewer retries.
RETRY_HEADERS = (RETRIES, RETRIES_TIMESTAMP, FL_RETRIES, UNCOUNTED, CONDEMNED, NOT_BEFORE)

#: The instant by which an inbox finds a message again, kept by a delayed retry that changes the due time.
FIRST_INSTANT = "Postdate.FirstInstant"
#: How often a handler has put the message off (`MessageContext.defer`): an inbox handles each turn once.
TURN = "Postdate.Turn"

#: What belongs to one journey of a message, and must not come along when its headers are sent on.
OF_ONE_JOURNEY = (TERM, PAYLOAD, ATTEMPTS, *RETRY_HEADERS)

Headers = dict[str, str | None]

_WIRE_DATE_LENGTH = 28
_DIGITS = [*range(4), 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, *range(20, 26)]
_TIMESPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<d>\d{1,9})\.)?(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})(?:\.(?P<f>\d{1,7}))?",
    re.ASCII,
)


def format_instant(instant: datetime) -> str:
    """`2026-03-01 07:08:09:987654 Z`: UTC, 28 characters, microseconds after a colon."""
    utc = instant.astimezone(UTC)
    return (
        f"{utc.year:04d}-{utc.month:02d}-{utc.day:02d} "
        f"{utc.hour:02d}:{utc.minute:02d}:{utc.second:02d}:{utc.microsecond:06d} Z"
    )


def parse_instant(text: str) -> datetime:
    """Read `format_instant`'s form as .NET does: only length and digit positions are checked.

    Raises:
        UsageError: the text is not of that form.
    """
    if len(text) != _WIRE_DATE_LENGTH or not all(text[i] in "0123456789" for i in _DIGITS):
        raise UsageError(f"{shown(text)} is not an instant of the form 2026-03-01 07:08:09:987654 Z")
    try:
        return datetime(
            int(text[:4]),
            int(text[5:7]),
            int(text[8:10]),
            int(text[11:13]),
            int(text[14:16]),
            int(text[17:19]),
            int(text[20:26]),
            tzinfo=UTC,
        )
    except ValueError as error:
        raise UsageError(f"{text!r} is not an instant: {error}") from None


def format_timespan(span: timedelta) -> str:
    """.NET's text form of a span: `[d.]hh:mm:ss[.fffffff]`."""
    sign = "-" if span < timedelta(0) else ""
    span = abs(span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    days = f"{span.days}." if span.days else ""
    fraction = f".{span.microseconds:06d}0" if span.microseconds else ""
    return f"{sign}{days}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


def parse_timespan(text: str) -> timedelta:
    """Read `format_timespan`'s form; ticks below a microsecond are cut.

    Raises:
        UsageError: the text is not of that form.
    """
    match = _TIMESPAN.fullmatch(text)
    if match is None:
        raise UsageError(f"{shown(text)} is not a time span of the form [d.]hh:mm:ss[.fffffff]")
    part = match.groupdict(default="0")
    try:
        span = timedelta(
            days=int(part["d"]),
            hours=int(part["h"]),
            minutes=int(part["m"]),
            seconds=int(part["s"]),
            microseconds=int(part["f"].ljust(7, "0")[:6]),
        )
        return -span if match["sign"] else span
    except OverflowError:
        raise UsageError(f"{text!r} is longer than a time span can be") from None
