"""XML envelopes: read whatever the sender's namespace is, and harmless when they are hostile."""

import base64
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.errors import PoisonMessage
from postdate.model import headers as h
from postdate.model.envelope import Opened, ReadForm, unwrap
from postdate.model.message import Message

SPACE = "http://tempuri.net/NServiceBus.Azure.Transports.WindowsAzureStorageQueues"
xml_texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
)


def wrapper(inner: str, space: str = SPACE, prolog: str = '<?xml version="1.0"?>') -> str:
    return f'{prolog}<MessageWrapper xmlns="{space}">{inner}</MessageWrapper>'


def pair(name: str, value: str | None) -> str:
    element = "" if value is None else f"<Value>{escape(value)}</Value>"
    return f"<KeyValuePair><Key>{escape(name)}</Key>{element}</KeyValuePair>"


def opened(xml: str | bytes) -> Opened:
    content = xml.encode() if isinstance(xml, str) else xml
    return unwrap(base64.b64encode(content).decode(), "native")


@given(
    xml_texts.filter(bool),
    st.dictionaries(xml_texts.filter(bool), st.none() | xml_texts, max_size=5),
    st.binary(),
)
@examples(30)
def test_any_xml_envelope_is_read(message_id, headers, body):
    pairs = "".join(pair(name, value) for name, value in headers.items())
    text = base64.b64encode(body).decode()
    inner = f"<Id>{escape(message_id)}</Id><Headers>{pairs}</Headers><Body>{text}</Body>"
    expected = {**headers, h.MESSAGE_INTENT: "0", h.CORRELATION_ID: None}
    assert opened(wrapper(inner)) == Opened(Message(message_id, expected, body), ReadForm.XML)


@pytest.mark.parametrize("space", ["http://contoso.com/Other", "urn:x", ""])
def test_the_namespace_does_not_matter_since_senders_can_set_it(space):
    inner = f"<Id>i</Id><MessageIntent>Reply</MessageIntent><Headers>{pair('a', 'b')}</Headers>"
    message = opened(wrapper(inner, space)).message
    assert message.headers["a"] == "b"
    assert message.headers[h.MESSAGE_INTENT] == "Reply"


def test_a_byte_order_mark_and_a_declared_encoding_are_tolerated():
    xml = wrapper("<Id>é</Id><Headers/>", prolog='<?xml version="1.0" encoding="utf-8"?>')
    assert opened(b"\xef\xbb\xbf" + xml.encode()).message.message_id == "é"


def test_members_that_are_absent_count_as_null():
    message = opened(wrapper(f"<Id>i</Id><Headers>{pair(h.REPLY_TO, 'us')}<x/></Headers>")).message
    assert message.headers == {h.REPLY_TO: "us", h.MESSAGE_INTENT: "0", h.CORRELATION_ID: None}
    assert message.body == b""


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ("<Id>i</Id>", "Headers is not a JSON object"),
        ("<Headers/>", "without Id"),
        ("<Id/><Headers/>", "without Id"),
        ("<Id>i</Id><Headers/><Body>?</Body>", "Body is not base64"),
        ("<Id>i</Id><Headers>", "XML envelope"),
        ("<Id>\x00</Id><Headers/>", "XML envelope"),
        ("<Id>&entity;</Id><Headers/>", "XML envelope"),
    ],
)
def test_a_broken_xml_envelope_is_poison(inner, why):
    with pytest.raises(PoisonMessage, match=why) as refused:
        opened(wrapper(inner))
    assert "\n" not in str(refused.value)


def test_bytes_that_are_no_utf_8_are_poison():
    with pytest.raises(PoisonMessage, match="XML envelope"):
        opened(wrapper("<Id>\u00e9</Id><Headers/>").encode("latin-1"))


DOCTYPE = '<!DOCTYPE b [<!ENTITY a "boo"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize("prolog", ["", '<?xml version="1.0"?>', "<!-- x -->"])
def test_xml_with_a_document_type_is_never_parsed_as_no_sender_writes_one(prolog):
    content = wrapper("<Id>&b;</Id><Headers/>", prolog=prolog + DOCTYPE)
    assert opened(content) == Opened(Message("native", {}, content.encode()), ReadForm.PLAIN)


def test_a_document_type_cannot_hide_behind_the_root_or_in_a_declared_encoding():
    root = b"<MessageWrapper><Id>&a;</Id></MessageWrapper>"
    ebcdic = b'<?xml version="1.0" encoding="cp037"?>'
    for content in (root + DOCTYPE.encode(), ebcdic + root, b"<MessageWrapper>" + DOCTYPE.encode() + root):
        with pytest.raises(PoisonMessage, match="XML envelope"):
            opened(content)
    assert opened(ebcdic + DOCTYPE.encode("cp037") + root).form is ReadForm.PLAIN


@pytest.mark.parametrize("space", [" ", "\n", "\r\n\t"])
def test_white_space_before_the_root_is_tolerated(space):
    for prolog in (space, f'<?xml version="1.0"?>{space}', f'{space}<?xml version="1.0"?>'):
        assert opened(wrapper("<Id>i</Id><Headers/>", prolog=prolog)).message.message_id == "i"
