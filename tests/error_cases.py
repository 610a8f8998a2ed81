"""Failed messages as they lie in an error queue, for tests of all kinds."""

from datetime import UTC, datetime, timedelta

from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.message import Message

FAILED_AT = datetime(2026, 3, 1, 7, 8, 9, tzinfo=UTC)
#: Headers that a failure, or retries before it, add.
FAULT_NAMES = {
    *h.RETRY_HEADERS,
    *(
        h.EXCEPTION_TYPE,
        h.INNER_EXCEPTION_TYPE,
        h.EXCEPTION_HELP_LINK,
        h.EXCEPTION_MESSAGE,
        h.EXCEPTION_SOURCE,
    ),
    *(h.STACK_TRACE, f"{h.EXCEPTION_DATA}Handler type", h.TIME_OF_FAILURE, h.FAILED_QUEUE),
    *(h.PROCESSING_ENDPOINT, h.PROCESSING_MACHINE, h.HOST_ID, h.HOST_NAME, h.ATTEMPTS),
}


def original(number: int, *, body: bytes = b'{"order": 7}', **headers: str | None) -> Message:
    """The message as its endpoint got it."""
    message_id = f"m{number:05d}"
    own = {
        h.MESSAGE_ID: message_id,
        h.MESSAGE_INTENT: "Send",
        h.CORRELATION_ID: message_id,
        h.CONTENT_TYPE: "application/json",
        h.ENCLOSED_TYPES: "Contoso.Messages.ShipOrder, Contoso.Messages, Version=1.0.0.0;Contoso.IOrder",
        "$.diagnostics.originating.hostid": "9f2c1d3e4b5a69788796a5b4c3d2e1f0",
        "Contoso.Note": "Größe",
    }
    return Message(message_id, {**own, **headers}, body)


def fault_headers(
    queue: str | None = "orders",
    *,
    error: str = "Contoso.OrderRefused",
    says: str = "order 17 is 'closed'",
    at: datetime = FAILED_AT,
    **changes: str | None,
) -> dict[str, str | None]:
    """What a .NET endpoint and ours add."""
    return {
        **dict.fromkeys(FAULT_NAMES, "1"),
        h.RETRIES_TIMESTAMP: h.format_instant(at),
        h.EXCEPTION_TYPE: error,
        h.EXCEPTION_HELP_LINK: None,
        h.EXCEPTION_MESSAGE: says,
        h.STACK_TRACE: f"{error}: {says}\n   at Contoso.Handler.Handle()\n   at Contoso.Pipeline.Invoke()",
        h.TIME_OF_FAILURE: h.format_instant(at),
        h.FAILED_QUEUE: queue,
        h.ATTEMPTS: "24",
        **changes,
    }


def failed(
    number: int, queue: str | None = "orders", *, body: bytes = b'{"order": 7}', **fault: object
) -> str:
    """The text of a failed message in the error queue."""
    message = original(number, body=body)
    fault.setdefault("at", FAILED_AT + timedelta(seconds=number))
    headers = message.headers | fault_headers(queue, **fault)
    return wrap(Message(message.message_id, headers, message.body))
