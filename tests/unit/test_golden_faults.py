"""Copies for the error queue as .NET endpoints make them, and the sizes that fit, by the golden file."""

from datetime import datetime

import pytest

from postdate.core.backoff import classic_idle_wait
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits, wrap, wrapper_json
from postdate.model.faults import Fault, with_fault
from postdate.model.limits import (
    BINARY_PROPERTY_BYTES,
    ENVELOPE_BYTES,
    MAX_TIME_TO_LIVE,
    QUEUE_TEXT_BYTES,
)
from postdate.model.message import Message

NSB = EnvelopeForm.NSERVICEBUS


@pytest.fixture
def message(golden):
    return Message(golden["message"]["id"], golden["message"]["headers"], b"{}")


def forwarded(golden, message):
    expected = golden["error_forward"]
    error = LookupError(expected["headers"][h.EXCEPTION_MESSAGE])
    failed_at = datetime.fromisoformat(expected["failed_at"])
    return with_fault(message, Fault(error, golden["message"]["destination"], failed_at, attempts=6))


def test_a_copy_for_the_error_queue_has_the_headers_of_dotnet_and_one_of_ours(golden, message):
    copy = forwarded(golden, message)
    assert set(copy.headers) == {*golden["error_forward"]["headers"], h.ATTEMPTS}
    assert copy.headers[h.ATTEMPTS] == "6"


def test_values_that_do_not_depend_on_the_language_are_those_of_dotnet(golden, message):
    ours, theirs = forwarded(golden, message).headers, golden["error_forward"]["headers"]
    of_python = {h.EXCEPTION_TYPE, h.EXCEPTION_SOURCE, h.STACK_TRACE}
    for name in theirs.keys() - of_python:
        assert ours[name] == theirs[name], name
    assert ours[h.EXCEPTION_HELP_LINK] is None
    assert ours[h.FAILED_QUEUE] == golden["message"]["destination"]


def test_values_of_the_language_mean_the_same_type_source_and_whole_text(golden, message):
    headers = forwarded(golden, message).headers
    assert headers[h.EXCEPTION_TYPE] == "builtins.LookupError"
    assert headers[h.EXCEPTION_SOURCE] == "builtins"
    trace = headers[h.STACK_TRACE]
    assert trace is not None
    assert trace == f"LookupError: {headers[h.EXCEPTION_MESSAGE]}\n"


def test_a_copy_keeps_id_and_body(golden, message):
    copy = forwarded(golden, message)
    assert copy.message_id == golden["error_forward"]["message_id_unchanged"]
    assert copy.body == message.body


def test_a_message_that_was_moved_back_by_hand_can_fail_again(golden, message):
    again = Message(message.message_id, {**message.headers, h.FAILED_QUEUE: "elsewhere"}, b"{}")
    assert forwarded(golden, again) == forwarded(golden, message)


def test_the_largest_body_that_can_be_sent_is_the_golden_one(golden):
    sizes = golden["size_limits"]
    bare = Message(golden["message"]["id"], sizes["headers_used"])
    assert len(wrapper_json(bare)) == sizes["envelope_bytes_without_body"]
    largest = sizes["largest_body_that_can_be_sent"]
    assert fits(sized(bare, largest), NSB)
    assert not fits(sized(bare, largest + 1), NSB)
    assert len(wrap(sized(bare, largest))) <= QUEUE_TEXT_BYTES < len(wrap(sized(bare, largest + 1)))
    assert len(wrap(sized(bare, 40 * 1024))) == sizes["example_40KiB_body_message_text"]


def test_the_largest_body_whose_failure_can_be_reported_is_the_golden_one(golden):
    sizes = golden["size_limits"]
    fault = {
        name: value
        for name, value in golden["error_forward"]["headers"].items()
        if name not in golden["message"]["headers"]
    }
    headers = {**sizes["headers_used"], **fault, h.STACK_TRACE: "x" * 2000}
    bare = Message(golden["message"]["id"], headers)
    largest = sizes["largest_body_that_can_be_forwarded_to_error_with_2000_char_stack"]
    assert fits(sized(bare, largest), NSB)
    assert not fits(sized(bare, largest + 1), NSB)


def test_the_limits_are_those_of_the_golden_file(golden):
    sizes = golden["size_limits"]
    assert sizes["max_message_text_bytes"] == QUEUE_TEXT_BYTES
    assert sizes["max_envelope_json_bytes"] == ENVELOPE_BYTES
    assert sizes["largest_body_the_table_accepts"] == BINARY_PROPERTY_BYTES


def test_the_idle_sleeps_of_dotnet_are_known_for_comparison(golden):
    backoff = golden["backoff"]
    peek, most = backoff["peek_s"], backoff["max_s"]
    assert [classic_idle_wait(n, peek, most) for n in range(1, 6)] == backoff["first"]
    assert [classic_idle_wait(n) for n in range(1, 6)] == backoff["first"]
    cap = backoff["idle_polls_until_cap"]
    assert classic_idle_wait(cap - 1) < most
    assert classic_idle_wait(cap) == classic_idle_wait(cap + 1) == most
    slept = sum(classic_idle_wait(n) for n in range(1, cap))
    assert slept == backoff["sleep_seconds_until_cap_is_first_used"]
    swapped = [classic_idle_wait(n, most, peek) for n in range(1, 6)]
    assert swapped == backoff["swapped_arguments_bug_first"]


def test_a_time_to_live_may_be_longer_than_the_30_days_at_which_dotnet_stops(golden):
    # .NET gives every message 30 days and a raw move none; ours never expire unless asked to.
    by_default = next(case["ttl"] for case in golden["ttl_seconds"] if case.get("ttbr_s", 0) is None)
    assert by_default < MAX_TIME_TO_LIVE.total_seconds()
    assert golden["error_forward"]["ttl_seconds"] == by_default


def sized(message, body_bytes):
    return Message(message.message_id, message.headers, b"x" * body_bytes)
