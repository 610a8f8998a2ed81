"""What goes back to its endpoint is the message without its failure, in the envelope that it came in."""

import base64
import json

import pytest
from error_cases import FAULT_NAMES, fault_headers, original
from hypothesis import given
from unit_cases import examples, messages

from postdate.errors import PoisonMessage
from postdate.model import headers as h
from postdate.model.envelope import ReadForm, unwrap, wrap
from postdate.model.message import Message
from postdate.model.returning import is_of_failure, with_payload_name, without_fault

PAIR = "NServiceBus.KeyValuePairOfStringAndString"


def encoded(content):
    return base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()


def broken_down(text):
    return base64.b64decode(text)


def test_every_header_of_a_failure_is_known_and_no_other():
    assert all(map(is_of_failure, FAULT_NAMES))
    assert not any(map(is_of_failure, original(1).headers))
    assert not is_of_failure(h.TERM)
    assert not is_of_failure(h.DELIVER_AT)
    assert not is_of_failure("NServiceBus.ExceptionInfoX")


def test_our_envelope_comes_back_to_the_letter():
    message = original(1)
    failed = Message(message.message_id, message.headers | fault_headers(), message.body)
    assert without_fault(wrap(failed)) == wrap(message)


def test_the_envelope_of_system_text_json_comes_back_to_the_letter(golden):
    text = golden["envelope_system_text_json"]["message_text"]
    message = unwrap(text, "").message
    failed = Message(message.message_id, message.headers | fault_headers(), message.body)
    assert without_fault(wrap(failed)) == text


@pytest.mark.parametrize("name", ["envelope_newtonsoft", "envelope_newtonsoft_v7"])
def test_the_envelope_of_newtonsoft_comes_back_to_the_letter(golden, name):
    text = golden[name]["message_text"]
    wrapper = json.loads(golden[name]["json_without_bom"])
    wrapper["Headers"] |= fault_headers()
    failed = b"\xef\xbb\xbf" + json.dumps(wrapper, ensure_ascii=False, separators=(",", ":")).encode()
    assert without_fault(encoded(failed)) == text


@pytest.mark.parametrize("space", ["", "\n  "])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_the_envelope_of_xml_comes_back_to_the_letter(golden, space, bom):
    xml = golden["envelope_xml"]["xml"]
    pairs = "".join(
        f"<{PAIR}><Key>{name}</Key>{'' if value is None else f'<Value>{value}</Value>'}</{PAIR}>{space}"
        for name, value in fault_headers(says="a &lt;b&gt; c").items()
    )
    first, last = xml.index(f"<{PAIR}>"), xml.rindex("</Headers>")
    for place in (first, last):
        failed = xml[:place] + pairs + xml[place:]
        expected = xml[:place] + space * len(fault_headers()) + xml[place:]
        assert broken_down(without_fault(encoded(bom + failed.encode()))) == bom + expected.encode()


def test_an_xml_envelope_may_have_a_prefix_and_a_declared_encoding_that_lies():
    pair = f"<x:p><x:Key>{h.FAILED_QUEUE}</x:Key><x:Value>orders</x:Value></x:p>"
    head = '<?xml version="1.0" encoding="ISO-8859-1"?><MessageWrapper xmlns="urn:a" xmlns:x="urn:a">'
    rest = "<Id>ä</Id><Headers>{}<p><Key>K</Key><Value>ö</Value></p></Headers></MessageWrapper>"
    back = broken_down(without_fault(encoded(head + rest.format(pair)))).decode()
    assert back == head + rest.format("")


def test_an_array_other_cases_and_further_values_stay():
    wrapper = {"id": "i", "headers": {**fault_headers(), "Own": None}, "body": "eA+/", "recoverable": True}
    text = without_fault(encoded(json.dumps([wrapper])))
    (back,) = json.loads(broken_down(text))
    assert back == {**wrapper, "headers": {"Own": None}}
    assert b'"body":"eA+/"' in broken_down(text)


def test_a_text_without_fault_headers_is_returned_as_it_is():
    spaced = encoded('{ "Id": "i",  "Headers": {"a": "b"}, "Body": null }')
    assert without_fault(spaced) == spaced
    for plain in ("just text", encoded("just text"), encoded('{"Headers": {"NServiceBus.FailedQ": "q"}}')):
        assert unwrap(plain, "").form is ReadForm.PLAIN
        assert without_fault(plain) == plain


def test_a_broken_envelope_is_poison():
    with pytest.raises(PoisonMessage):
        without_fault(encoded('{"Id":"x","Body":""}'))


@given(messages)
@examples(200)
def test_id_body_and_all_other_headers_of_any_message_stay(message):
    kept = {name: value for name, value in message.headers.items() if not is_of_failure(name)}
    before = unwrap(wrap(Message(message.message_id, kept, message.body)), "").message
    failed = Message(message.message_id, {**kept, **fault_headers()}, message.body)
    assert unwrap(without_fault(wrap(failed)), "").message == before


def test_the_name_of_a_large_body_can_be_changed_and_nothing_else():
    old, new = f"{'0a' * 32}-{'1' * 32}", f"{'0b' * 32}-{'2' * 32}"
    message = original(1, **{h.PAYLOAD: old})
    changed = unwrap(with_payload_name(wrap(message), old, new), "").message
    assert changed == unwrap(wrap(original(1, **{h.PAYLOAD: new})), "").message
