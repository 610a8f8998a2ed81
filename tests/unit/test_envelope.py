"""Envelopes: what is wrapped comes out again, and what nobody of ours wrote is a plain message."""

import base64
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from unit_cases import bodies, examples, messages, texts

from postdate.errors import InvalidBody, PoisonMessage
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, Opened, ReadForm, fits, unwrap, wrap, wrapper_json
from postdate.model.limits import ENVELOPE_BYTES, QUEUE_TEXT_BYTES
from postdate.model.message import Message

INTENTS = ["0", "Send", "Publish", "Subscribe", "Unsubscribe", "Reply"]


def envelope(**members: object) -> str:
    """The text of a wrapper with these members."""
    return base64.b64encode(json.dumps(members).encode()).decode()


@given(messages)
@examples(50)
def test_a_message_comes_out_of_its_envelope_as_it_went_in(message):
    opened = unwrap(wrap(message), "native")
    expected = {**message.headers}
    expected[h.MESSAGE_INTENT] = "0"  # which .NET sets too, as the random headers name none
    expected[h.CORRELATION_ID] = None
    assert opened == Opened(Message(message.message_id, expected, message.body), ReadForm.JSON)


@given(messages)
@examples(25)
def test_any_json_reader_can_read_our_envelope(message):
    wrapper = json.loads(wrapper_json(message))
    assert wrapper["Headers"] == message.headers
    assert base64.b64decode(wrapper["Body"]) == message.body
    assert wrapper["Id"] == message.message_id


@pytest.mark.parametrize("intent", INTENTS)
def test_the_intent_survives(intent):
    message = Message("id", {h.MESSAGE_INTENT: intent, h.REPLY_TO: "us", h.CORRELATION_ID: "c"}, b"")
    assert json.loads(wrapper_json(message))["MessageIntent"] == INTENTS.index(intent)
    assert unwrap(wrap(message), "native").message == message


@pytest.mark.parametrize("intent", [None, "", "Shout", "send"])
def test_an_unknown_intent_is_written_as_0(intent):
    assert json.loads(wrapper_json(Message("id", {h.MESSAGE_INTENT: intent})))["MessageIntent"] == 0


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1, "Send"),
        (5, "Reply"),
        ("Publish", "Publish"),
        ("reply", "Reply"),
        (6, "0"),
        (-1, "0"),
        (True, "0"),
        (None, "0"),
        ("x", "0"),
        (1.0, "0"),
    ],
)
def test_an_intent_is_read_as_number_or_name(value, name):
    opened = unwrap(envelope(Id="i", Headers={}, MessageIntent=value), "native")
    assert opened.message.headers[h.MESSAGE_INTENT] == name


def test_a_correlation_id_of_the_wrapper_wins_even_when_null():
    headers = {h.CORRELATION_ID: "old", h.REPLY_TO: "old"}
    opened = unwrap(envelope(Id="i", Headers=headers, CorrelationId=None, ReplyToAddress=None), "n")
    assert opened.message.headers[h.CORRELATION_ID] is None
    assert opened.message.headers[h.REPLY_TO] == "old"


def test_an_array_around_the_wrapper_is_accepted():
    inner = json.loads(base64.b64decode(envelope(Id="i", Headers={"a": "b"}, Body="eA==")))
    text = base64.b64encode(json.dumps([inner]).encode()).decode()
    assert unwrap(text, "native").message.body == b"x"
    both = base64.b64encode(json.dumps([inner, inner]).encode()).decode()
    assert unwrap(both, "native").form is ReadForm.PLAIN


@pytest.mark.parametrize("body", [None, ""])
def test_a_body_of_null_is_empty(body):
    assert unwrap(envelope(Id="i", Headers={}, Body=body), "native").message.body == b""


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"Id": "i", "Body": "eA=="}, "without Headers"),
        ({"Id": "i", "Body": "eA==", "Headers": None}, "without Headers"),
        ({"Id": "", "Headers": {}}, "without Id"),
        ({"Id": None, "Headers": {}}, "without Id"),
        ({"Id": 7, "Headers": {}}, "without Id"),
        ({"Id": "i", "Headers": {"a": 1}}, "'a' is int, not text"),
        ({"Id": "i", "Headers": {"a\nb": {}}}, "is dict, not text"),
        ({"Id": "i", "Headers": {}, "Body": "not base64"}, "Body is not base64"),
        ({"Id": "i", "Headers": {}, "Body": "é"}, "Body is not base64"),
        ({"Id": "i", "Headers": {}, "Body": [120]}, "Body is not base64"),
    ],
)
def test_a_broken_envelope_is_poison(members, why):
    with pytest.raises(PoisonMessage, match=why) as refused:
        unwrap(envelope(**members), "native")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        '{"OrderId":1}',
        '{"Id":"a","Headers":{},"Extra":1}',
        '{"Id":1}',
        '{"Id',
        "[]",
        "[1]",
        "{}",
        "<order/>",
        "<a><MessageWrapper/></a>",
        "<MessageWrapperX/>",
        "<MessageWrapper",
        "<!DOCTYPE x><MessageWrapper/>",
        "",
        "text",
    ],
)
def test_anything_else_in_base64_is_a_plain_message(content):
    text = base64.b64encode(content.encode()).decode()
    assert unwrap(text, "native-1") == Opened(Message("native-1", {}, content.encode()), ReadForm.PLAIN)


@pytest.mark.parametrize("text", ["hello world", "é", "abc", "ab\ncd", "\ud800", '{"a":1}', "===="])
def test_anything_that_is_no_base64_is_a_plain_message_of_text(text):
    expected = Message("native-1", {}, text.encode("utf-8", "surrogatepass"))
    assert unwrap(text, "native-1") == Opened(expected, ReadForm.PLAIN)


@given(bodies)
@examples(25)
def test_a_raw_body_comes_out_as_it_went_in(body):
    assume(not body.lstrip().startswith(b"<MessageWrapper"))  # which is an envelope
    text = wrap(Message("id", {"lost": "on the way"}, body), EnvelopeForm.RAW)
    opened = unwrap(text, "native")
    assert opened == Opened(Message("native", {}, body), ReadForm.PLAIN)


@given(texts)
@examples(40)
def test_raw_text_is_the_text_itself_or_refused_where_a_queue_cannot_hold_it(text):
    message = Message("id", {}, text.encode())
    if any(ord(char) < 32 and char not in "\t\n\r" for char in text) or "\uffff" in text or "\ufffe" in text:
        with pytest.raises(InvalidBody, match="control characters"):
            wrap(message, EnvelopeForm.RAW_TEXT)
    else:
        assert wrap(message, EnvelopeForm.RAW_TEXT) == text


def test_raw_text_must_be_text():
    with pytest.raises(InvalidBody, match="not UTF-8 text"):
        wrap(Message("id", {}, b"\xff"), EnvelopeForm.RAW_TEXT)


@given(messages, st.integers(0, 9000))
@examples(25)
def test_a_message_fits_when_its_dispatched_text_does(message, reserve):
    size = len(base64.b64decode(wrap(message)))
    room = ENVELOPE_BYTES - size
    assert fits(message, EnvelopeForm.NSERVICEBUS, reserve=reserve)
    assert fits(message, EnvelopeForm.NSERVICEBUS, reserve=room)
    assert not fits(message, EnvelopeForm.NSERVICEBUS, reserve=room + 1)


@pytest.mark.parametrize(
    ("form", "largest"), [(EnvelopeForm.RAW, ENVELOPE_BYTES), (EnvelopeForm.RAW_TEXT, QUEUE_TEXT_BYTES)]
)
def test_a_raw_body_fits_when_its_text_does(form, largest):
    full = Message("id", {"a": "b"}, b"x" * largest)
    assert len(wrap(full, form)) == QUEUE_TEXT_BYTES
    assert fits(full, form)
    assert not fits(full, form, reserve=1)
    assert not fits(Message("id", {}, b"x" * (largest + 1)), form)
