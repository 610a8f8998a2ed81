"""The wire form of a message inside a queue: NServiceBus' `MessageWrapper`, or the body alone.

Written: the JSON of System.Text.Json in base64 (`nservicebus`), the body in base64 (`raw`, what Azure
Functions expect by default) or the body as text (`raw-text`). Read: those, and every other form that .NET
fleets have written (nservicebus-azure, section 2): Newtonsoft with a byte order mark, any casing of names,
intent as number or name, an array around the object, XML; and plain messages of anybody else.
"""

import base64
import binascii
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from enum import StrEnum

from postdate.errors import InvalidBody, PoisonMessage
from postdate.model import headers as h
from postdate.model.jsontext import longest_map, longest_text, quote, quote_or_null, read, write_map
from postdate.model.limits import ENVELOPE_BYTES, QUEUE_TEXT_BYTES
from postdate.model.message import Message
from postdate.model.rowcodec import headers_of

_INTENTS = ("0", "Send", "Publish", "Subscribe", "Unsubscribe", "Reply")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
# Nothing may stand before the root but the XML declaration: so no document type, hence no entities.
_XML_ENVELOPE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>)?\s*<MessageWrapper[\s>]")
_MEMBERS = (
    "IdForCorrelation",
    "Id",
    "MessageIntent",
    "ReplyToAddress",
    "TimeToBeReceived",
    "Headers",
    "Body",
    "CorrelationId",
    "Recoverable",
)
#: More than the wrapper's own characters: names of members, nulls, a number.
_WRAPPER_BYTES = 300
_LOWER_MEMBERS = {name.lower() for name in _MEMBERS}


class EnvelopeForm(StrEnum):
    """How a destination wants its messages."""

    NSERVICEBUS = "nservicebus"
    RAW = "raw"
    RAW_TEXT = "raw-text"


class ReadForm(StrEnum):
    """In which form a message was found."""

    JSON = "json"
    XML = "xml"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Opened:
    """A message taken out of its envelope."""

    message: Message
    form: ReadForm


def wrap(message: Message, form: EnvelopeForm = EnvelopeForm.NSERVICEBUS) -> str:
    """The text to put into the queue.

    Raises:
        InvalidBody: `raw-text`, and the body is not text that XML can carry.
    """
    if form is EnvelopeForm.RAW_TEXT:
        return _clean_text(message.body)
    if form is EnvelopeForm.RAW:
        return base64.b64encode(message.body).decode()
    return base64.b64encode(wrapper_json(message).encode()).decode()


def wrapper_json(message: Message) -> str:
    """The `MessageWrapper` as System.Text.Json writes it: members in .NET's order, nulls written."""
    headers = message.headers
    intent = headers.get(h.MESSAGE_INTENT) or "0"
    number = _INTENTS.index(intent) if intent in _INTENTS else 0
    body = base64.b64encode(message.body).decode()
    return (
        f'{{"IdForCorrelation":null,"Id":{quote(message.message_id)},"MessageIntent":{number},'
        f'"ReplyToAddress":{quote_or_null(headers.get(h.REPLY_TO))},"TimeToBeReceived":"00:00:00",'
        f'"Headers":{write_map(headers)},"Body":"{body}",'
        f'"CorrelationId":{quote_or_null(headers.get(h.CORRELATION_ID))},"Recoverable":false}}'
    )


def fits(message: Message, form: EnvelopeForm, *, reserve: int = 0) -> bool:
    """Whether the dispatched form fits a queue message, `reserve` bytes of it kept free."""
    if form is EnvelopeForm.RAW_TEXT:
        return len(message.body) + reserve <= QUEUE_TEXT_BYTES
    if form is EnvelopeForm.RAW:
        return len(message.body) + reserve <= ENVELOPE_BYTES
    room = ENVELOPE_BYTES - reserve
    # ASCII: characters are bytes.
    return _longest_wrapper(message) <= room or len(wrapper_json(message)) <= room


def _longest_wrapper(message: Message) -> int:
    """At least as many bytes as the wrapper takes: most messages fit by far, and need not be written."""
    headers = message.headers
    texts = (message.message_id, headers.get(h.REPLY_TO) or "", headers.get(h.CORRELATION_ID) or "")
    return _WRAPPER_BYTES + longest_map(headers) + sum(map(longest_text, texts)) + len(message.body) * 4 // 3


def _clean_text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidBody("the body is not UTF-8 text, which form raw-text needs; use form raw") from None
    if _NOT_XML.search(text):
        raise InvalidBody("the body holds control characters, which a queue message can't; use form raw")
    return text


def unwrap(text: str, native_id: str) -> Opened:
    """Take a message out of a queue message's text.

    A text that is no envelope is a plain message: id = native id, no headers, the body decoded if it is
    base64 and taken as UTF-8 if not.

    Raises:
        PoisonMessage: it is an envelope, and a broken one.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return Opened(Message(native_id, {}, text.encode("utf-8", "surrogatepass")), ReadForm.PLAIN)
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in (b"{", b"["):
        wrapper = _json_wrapper(content)
        if wrapper is not None:
            return Opened(_from_members(wrapper), ReadForm.JSON)
    elif _XML_ENVELOPE.match(content):
        return Opened(_from_members(_xml_wrapper(content)), ReadForm.XML)
    return Opened(Message(native_id, {}, content), ReadForm.PLAIN)


def _json_wrapper(content: bytes) -> dict[str, object] | None:
    """The wrapper's members under lower-case names, or None where the JSON is somebody's plain message.

    A wrapper has an id and headers, and no member that wrappers don't have. Without headers but in the
    exact names of .NET it is a broken wrapper, which .NET refuses too.
    """
    try:
        parsed = read(content)
    except PoisonMessage:
        return None
    if isinstance(parsed, list) and len(parsed) == 1:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return None
    members = {str(name).lower(): value for name, value in parsed.items()}
    if not members.keys() <= _LOWER_MEMBERS or "id" not in members:
        return None
    if not isinstance(members.get("headers"), dict):
        if "Body" in parsed and "Id" in parsed:
            raise PoisonMessage("envelope without Headers")
        return None
    return members


def _xml_wrapper(content: bytes) -> dict[str, object]:
    try:
        # As text, so that no declared encoding makes something else of what was matched.
        root = ET.fromstring(content.decode("utf-8-sig").lstrip())  # noqa: S314 - see _XML_ENVELOPE
    except (ET.ParseError, UnicodeDecodeError) as error:
        raise PoisonMessage(f"XML envelope: {error}") from None
    members: dict[str, object] = {}
    for element in root:
        name = _local_name(element)
        if name == "Headers":
            pairs: dict[str, str | None] = {}
            for pair in element:
                entry = {_local_name(child): child.text or "" for child in pair}
                if "Key" in entry:
                    pairs[entry["Key"]] = entry.get("Value")
            members["headers"] = pairs
        else:
            members[name.lower()] = element.text or ""
    return members


def _local_name(element: ET.Element) -> str:
    """The name without its namespace, the first part of which is a setting of the sender's serializer."""
    return element.tag.rpartition("}")[2]


def _from_members(members: dict[str, object]) -> Message:
    headers = dict(headers_of(members.get("headers"), "envelope member Headers"))
    message_id = members.get("id")
    if not isinstance(message_id, str) or not message_id:
        raise PoisonMessage("envelope without Id")
    headers[h.MESSAGE_INTENT] = _intent(members.get("messageintent"))
    reply_to = members.get("replytoaddress")
    if isinstance(reply_to, str):
        headers[h.REPLY_TO] = reply_to
    correlation = members.get("correlationid")
    headers[h.CORRELATION_ID] = correlation if isinstance(correlation, str) else None
    return Message(message_id, headers, _body(members.get("body")))


def _intent(value: object) -> str:
    if isinstance(value, str):
        by_name = {name.lower(): name for name in _INTENTS}
        return by_name.get(value.lower(), "0")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_INTENTS):
        return _INTENTS[value]
    return "0"


def _body(value: object) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise PoisonMessage("envelope member Body is not base64")
