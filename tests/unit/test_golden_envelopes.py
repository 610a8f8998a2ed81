"""Envelopes as .NET endpoints write and read them, by the golden file."""

import base64

import pytest

from postdate.errors import PoisonMessage
from postdate.model import headers as h
from postdate.model.envelope import Opened, ReadForm, unwrap, wrap, wrapper_json
from postdate.model.message import Message

KINDS = ("envelope_system_text_json", "envelope_newtonsoft", "envelope_newtonsoft_v7", "envelope_xml")


@pytest.fixture
def message(golden):
    expected = golden["message"]
    return Message(expected["id"], expected["headers"], base64.b64decode(expected["body_base64"]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_envelope_that_dotnet_ever_wrote_is_read(golden, message, kind):
    opened = unwrap(golden[kind]["message_text"], "native-9")
    assert opened.message.message_id == message.message_id
    assert opened.message.body == message.body
    assert opened.message.headers == golden[kind].get("headers", message.headers)
    assert opened.form is (ReadForm.XML if kind == "envelope_xml" else ReadForm.JSON)


def test_the_texts_of_the_golden_file_are_what_they_say(golden):
    stj, newtonsoft = golden["envelope_system_text_json"], golden["envelope_newtonsoft"]
    assert base64.b64decode(stj["message_text"]).decode() == stj["json"]
    with_bom = base64.b64decode(newtonsoft["message_text"])
    assert newtonsoft["message_text"].startswith("77u/")
    assert with_bom.decode("utf-8-sig") == newtonsoft["json_without_bom"]
    assert len(with_bom) == newtonsoft["json_bytes_with_bom"]
    assert base64.b64decode(golden["envelope_xml"]["message_text"]).decode() == golden["envelope_xml"]["xml"]


def test_an_envelope_is_written_as_system_text_json_does_to_the_letter(golden, message):
    expected = golden["envelope_system_text_json"]
    assert wrapper_json(message) == expected["json"]
    assert len(wrapper_json(message)) == expected["json_bytes"]
    assert wrap(message) == expected["message_text"]
    assert len(wrap(message)) == expected["message_text_chars"]


def test_the_time_to_be_received_of_version_7_is_ignored_as_newer_versions_do(golden):
    opened = unwrap(golden["envelope_newtonsoft_v7"]["message_text"], "native")
    assert h.TIME_TO_BE_RECEIVED not in opened.message.headers


def test_the_smallest_envelope_that_dotnet_accepts_is_accepted(golden):
    case = golden["envelope_minimal_accepted"]
    opened = unwrap(case["message_text"], "native-9")
    assert opened == Opened(Message("native-1", case["after_unwrap_headers"], b"{}"), ReadForm.JSON)


def rejected(golden, why):
    (case,) = [case for case in golden["envelope_rejected"] if case["why"].startswith(why)]
    return case["message_text"]


def test_an_envelope_without_headers_is_refused_as_dotnet_refuses_it(golden):
    with pytest.raises(PoisonMessage, match="without Headers"):
        unwrap(rejected(golden, "Headers missing"), "native-9")


def test_a_text_that_is_no_base64_is_a_plain_message_since_others_than_dotnet_send_to_us(golden):
    text = rejected(golden, "not base64")
    assert unwrap(text, "native-9") == Opened(Message("native-9", {}, text.encode()), ReadForm.PLAIN)


def test_an_intent_by_name_is_read_since_newtonsoft_reads_it(golden, message):
    opened = unwrap(rejected(golden, "intent as text"), "native-9")
    assert opened == Opened(message, ReadForm.JSON)


def test_names_in_camel_case_are_read_since_newtonsoft_reads_them(golden):
    opened = unwrap(rejected(golden, "camel case"), "native-9")
    assert opened.message.message_id == "x"
    assert opened.message.body == b"{}"
    assert opened.form is ReadForm.JSON


def test_no_rejected_envelope_of_the_golden_file_is_left_untested(golden):
    assert len(golden["envelope_rejected"]) == 4
