"""Messages that failed for one reason are one group, whatever numbers, ids and names their texts carry."""

from datetime import timedelta

import pytest
from error_cases import FAILED_AT, failed, fault_headers, original
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples, texts

from postdate.core.error_groups import grouped
from postdate.core.error_selection import Selection
from postdate.model import headers as h
from postdate.model.causes import Cause, masked
from postdate.model.envelope import wrap
from postdate.model.failed import FailedState, failed_message
from postdate.model.message import Message


def seen(text, native_id="n1", dequeue_count=1):
    return failed_message(text, native_id, FAILED_AT + timedelta(hours=1), dequeue_count)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("order 17 is closed", "order <n> is closed"),
        ("took 1.5 s, 2,000 rows at 07:08:09.123", "took <n> s, <n> rows at <n>"),
        ("no order 1b0c7c7e-52f4-4a6e-9d0b-b3f2007a11c4", "no order <id>"),
        ("no order {1B0C7C7E-52F4-4A6E-9D0B-B3F2007A11C4}", "no order {<id>}"),
        ("row 0d6f2c6e4b8a4d3f9a5b7c1e2f304152 at 0x7ffE", "row <id> at <id>"),
        ("customer 'O-1' has no \"name\"", "customer <text> has no <text>"),
        ("we can't, it isn't 'there'", "we can't, it isn't <text>"),
        ("two\nlines \t here", "two lines here"),
        ("a cafe faced decade", "a cafe faced decade"),
        ("", ""),
    ],
)
def test_what_differs_from_message_to_message_is_masked(message, shown):
    assert masked(message) == shown


@given(
    st.integers(0, 10**12), st.uuids(), st.text(alphabet=st.characters(exclude_characters="'"), max_size=30)
)
@examples(100)
def test_numbers_ids_and_quoted_values_make_no_new_group(number, identity, name):
    text = f"order {number} of {identity} is 'x'"
    other = f"order 5 of 1b0c7c7e-52f4-4a6e-9d0b-b3f2007a11c4 is '{name}'"
    assert Cause("T", masked(text), "q").key == Cause("T", masked(other), "q").key


@given(texts)
@examples(200)
def test_any_text_is_masked_to_one_short_line(text):
    shown = masked(text * 200)
    assert len(shown) <= 200
    assert len(shown.splitlines()) <= 1


def test_type_message_and_queue_each_make_a_group_of_their_own():
    keys = {
        Cause(*parts).key for parts in (("T", "m", "q"), ("U", "m", "q"), ("T", "o", "q"), ("T", "m", "r"))
    }
    assert len(keys) == 4
    assert Cause("T", "m", "Orders").key == Cause("T", "m", "orders").key
    assert all(len(key) == 8 for key in keys)


def test_a_failed_message_is_told_by_its_headers():
    message = seen(failed(3), dequeue_count=4)
    assert (message.message_id, message.native_id, message.state) == ("m00003", "n1", FailedState.FAILED)
    assert message.cause == Cause("Contoso.OrderRefused", "order <n> is <text>", "orders")
    assert message.exception_message == "order 17 is 'closed'"
    assert message.failed_at == message.at == FAILED_AT + timedelta(seconds=3)
    assert (message.attempts, message.dequeue_count) == (24, 4)
    assert message.message_type == "Contoso.Messages.ShipOrder"
    assert message.payload is None
    assert message.size == len(failed(3))


def test_a_message_without_fault_headers_is_unexplained_and_counts_from_when_it_came():
    message = seen(wrap(original(1)))
    assert message.state is FailedState.UNEXPLAINED
    assert (message.failed_queue, message.failed_at, message.attempts) == (None, None, None)
    assert message.at == message.inserted_at
    assert seen("just text").state is FailedState.UNEXPLAINED
    assert seen("just text").message_id == "n1"


def test_a_message_that_cannot_be_read_is_told_as_such():
    broken = '{"Id":"x","Body":""}'
    import base64

    message = seen(base64.b64encode(broken.encode()).decode())
    assert message.state is FailedState.UNREADABLE
    assert message.message_id == "n1"
    assert "without Headers" in message.cause.message


@pytest.mark.parametrize(
    ("name", "value", "field", "told"),
    [
        (h.ATTEMPTS, "many", "attempts", None),
        (h.ATTEMPTS, "²", "attempts", None),
        (h.TIME_OF_FAILURE, "yesterday", "failed_at", None),
        (h.FAILED_QUEUE, "", "failed_queue", None),
        (h.FAILED_QUEUE, None, "failed_queue", None),
    ],
)
def test_headers_that_hold_nonsense_are_as_good_as_absent(name, value, field, told):
    message = original(1)
    text = wrap(Message("m1", message.headers | fault_headers(**{name: value}), b""))
    assert getattr(seen(text), field) == told
    assert seen(text).state is FailedState.FAILED


def test_groups_are_counted_the_largest_first_with_first_and_last_time():
    texts = [failed(n) for n in range(3)] + [failed(7, "invoices")]
    groups = grouped(seen(text, f"n{n}") for n, text in enumerate(texts))
    assert [(group.count, group.cause.failed_queue) for group in groups] == [(3, "orders"), (1, "invoices")]
    assert groups[0].first_at == FAILED_AT
    assert groups[0].last_at == FAILED_AT + timedelta(seconds=2)
    assert groups[0].example == "m00000"


SELECTED = {
    "nothing": (Selection(), True),
    "message id": (Selection(ids=frozenset({"m00001"})), True),
    "native id": (Selection(ids=frozenset({"n1", "other"})), True),
    "another id": (Selection(ids=frozenset({"other"})), False),
    "whole type": (Selection(exception_type="contoso.orderrefused"), True),
    "last name of the type": (Selection(exception_type="OrderRefused"), True),
    "a part of a name": (Selection(exception_type="Refused"), False),
    "queue": (Selection(failed_queue="Orders"), True),
    "another queue": (Selection(failed_queue="order"), False),
    "since then": (Selection(since=FAILED_AT + timedelta(seconds=1)), True),
    "since later": (Selection(since=FAILED_AT + timedelta(seconds=2)), False),
    "until then": (Selection(until=FAILED_AT + timedelta(seconds=1)), False),
    "until later": (Selection(until=FAILED_AT + timedelta(seconds=2)), True),
    "text in the body": (Selection(text='"ORDER": 7'), True),
    "text in a header": (Selection(text="größe"), True),
    "text in a header's name": (Selection(text="contoso.note"), True),
    "text in the id": (Selection(text="M0000"), True),
    "text nowhere": (Selection(text="nowhere"), False),
    "one of two": (Selection(failed_queue="orders", exception_type="Other"), False),
}


@pytest.mark.parametrize("case", SELECTED)
def test_what_is_given_must_fit(case):
    selection, fits = SELECTED[case]
    text = failed(1)
    assert selection.takes(seen(text), text) is fits


def test_a_group_is_named_by_its_key_or_the_beginning_of_it():
    text = failed(1)
    key = seen(text).group
    assert Selection(group=key[:4].upper()).takes(seen(text), text)
    assert not Selection(group="zzzz").takes(seen(text), text)


def test_text_is_found_in_what_can_not_be_read():
    import base64

    text = base64.b64encode(b'{"Id":"x","Body":""}').decode()
    assert Selection(text=text[3:9].lower()).takes(seen(text), text)
