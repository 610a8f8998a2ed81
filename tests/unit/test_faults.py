"""Fault headers: why a message lies in the error queue, cut so that the copy fits."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples, messages, queue_names, texts

from postdate.errors import DestinationNotFound, StorageError
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits, unwrap, wrap, wrapper_json
from postdate.model.faults import Fault, with_fault
from postdate.model.limits import ENVELOPE_BYTES, FAULT_RESERVE_BYTES
from postdate.model.message import Message

AT = datetime(2026, 3, 1, 7, 8, 10, 250_000, tzinfo=UTC)
NSB = EnvelopeForm.NSERVICEBUS


def fault(error: BaseException, queue: str = "orders") -> Fault:
    return Fault(error, queue, AT, attempts=6)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error with a trace, as an `except` clause sees it."""
    try:
        if cause is not None:
            raise error from cause
        raise error
    except BaseException as caught:
        return caught


def copy_of(error: BaseException) -> dict[str, str | None]:
    return with_fault(Message("id", {"a": "b"}, b"x"), fault(error)).headers


def test_the_headers_say_what_went_wrong_where_and_when():
    headers = copy_of(raised(DestinationNotFound("orders", ["order"])))
    assert headers[h.EXCEPTION_TYPE] == "postdate.errors.DestinationNotFound"
    assert headers[h.EXCEPTION_SOURCE] == "postdate"
    assert headers[h.EXCEPTION_MESSAGE] == str(DestinationNotFound("orders", ["order"]))
    assert headers[h.FAILED_QUEUE] == "orders"
    assert headers[h.TIME_OF_FAILURE] == "2026-03-01 07:08:10:250000 Z"
    assert headers[h.ATTEMPTS] == "6"
    trace = headers[h.STACK_TRACE]
    assert trace is not None
    assert trace.startswith("Traceback")
    assert "in raised" in trace
    assert headers["a"] == "b"


def test_the_cause_is_named_where_there_is_one():
    assert h.INNER_EXCEPTION_TYPE not in copy_of(raised(StorageError("x")))
    headers = copy_of(raised(StorageError("x"), ConnectionResetError()))
    assert headers[h.INNER_EXCEPTION_TYPE] == "builtins.ConnectionResetError"


def test_the_context_counts_as_a_cause_unless_it_was_hidden():
    shown, hidden = StorageError("shown"), StorageError("hidden")
    try:
        raise KeyError("k")
    except KeyError:
        raised(shown)
        try:
            raise hidden from None
        except StorageError:
            pass
    assert copy_of(shown)[h.INNER_EXCEPTION_TYPE] == "builtins.KeyError"
    assert h.INNER_EXCEPTION_TYPE not in copy_of(hidden)


def test_retries_go_and_attempts_are_counted_anew():
    """With them a message returned days later would have no delayed retries (recoverability, REC-5)."""
    message = Message("id", {**dict.fromkeys(h.RETRY_HEADERS, "2"), h.ATTEMPTS: "1"}, b"")
    headers = with_fault(message, fault(StorageError("new"))).headers
    assert not set(h.RETRY_HEADERS) & set(headers)
    assert headers[h.ATTEMPTS] == "6"


def test_nothing_of_an_earlier_failure_is_left():
    data = "NServiceBus.ExceptionInfo.Data.Queue"
    once = with_fault(Message("id", {data: "old"}), fault(raised(OSError("old"), KeyError()), "elsewhere"))
    again = with_fault(once, fault(StorageError("new")))
    assert again == with_fault(Message("id", {}), fault(StorageError("new")))


def test_the_message_itself_is_left_as_it_is():
    headers: dict[str, str | None] = {"a": "b"}
    message = Message("id", headers, b"x")
    copy = with_fault(message, fault(StorageError("x")))
    assert message.headers == {"a": "b"}
    assert (copy.message_id, copy.body) == ("id", b"x")


def test_a_long_message_is_cut_where_dotnet_cuts_it():
    assert copy_of(StorageError("x" * 20_000))[h.EXCEPTION_MESSAGE] == "x" * 16_384


def test_the_end_of_a_long_trace_is_what_stays():
    trace = copy_of(StorageError("x" * 15_000 + "the end"))[h.STACK_TRACE]
    assert trace is not None
    assert len(trace) <= 16_384
    assert trace.endswith("the end\n")


hostile_texts = st.sampled_from(["x", "é", "🚚", "<", "\n", "\x00", chr(0xD800)]).flatmap(
    lambda char: st.integers(0, 20_000).map(lambda count: char * count)
)


@given(messages, hostile_texts | texts, queue_names, st.booleans())
@examples(30)
def test_a_copy_fits_the_error_queue_if_its_message_was_accepted(message, text, queue, chained):
    """What intake accepts leaves `FAULT_RESERVE_BYTES`; that is enough for any error."""
    room = ENVELOPE_BYTES - FAULT_RESERVE_BYTES
    bare = Message(message.message_id, message.headers)
    spare = room - len(wrap(bare)) * 3 // 4
    full = Message(message.message_id, message.headers, b"x" * (spare // 4 * 3))
    assert fits(full, NSB, reserve=FAULT_RESERVE_BYTES)
    error = raised(StorageError(text), OSError(text) if chained else None)
    copy = with_fault(full, Fault(error, f"{queue}@{'a' * 60}", AT, attempts=10_000))
    assert fits(copy, NSB)
    assert copy.body == full.body


@pytest.mark.parametrize("char", ["x", "é", "🚚", "\x00", chr(0xD800)], ids=ascii)
def test_the_reserve_is_enough_for_the_longest_address_and_the_costliest_text(char):
    headers = {"é" * 50: "🚚" * 50}
    spare = ENVELOPE_BYTES - FAULT_RESERVE_BYTES - len(wrapper_json(Message("id", headers)))
    full = Message("id", headers, b"x" * (spare // 4 * 3))
    assert fits(full, NSB, reserve=FAULT_RESERVE_BYTES)
    error = raised(StorageError(char * 20_000), OSError())
    copy = with_fault(full, Fault(error, f"{'q' * 63}@{'a' * 63}", AT, attempts=10_000_000))
    assert fits(copy, NSB)


def test_a_message_that_leaves_no_room_is_given_back_with_the_shortest_headers():
    full = Message("id", {}, b"x" * 36_600)
    assert fits(full, NSB)
    copy = with_fault(full, fault(raised(StorageError("x" * 5000))))
    assert not fits(copy, NSB)
    assert copy.headers[h.STACK_TRACE] == ""
    assert copy.headers[h.EXCEPTION_MESSAGE] == "x" * 256


@pytest.mark.parametrize("text", [f"file {chr(0xDCFF)}", "a\x00b", "\u2028"], ids=ascii)
def test_a_copy_can_be_read_whatever_the_error_says(text):
    copy = with_fault(Message("id", {}, b"x"), fault(StorageError(text)))
    opened = unwrap(wrap(copy), "native").message
    assert opened.message_id == "id"
    seen = opened.headers[h.EXCEPTION_MESSAGE]
    assert seen is not None
    seen.encode()
