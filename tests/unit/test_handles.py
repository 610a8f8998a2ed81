"""Handles: what schedule gives out finds the same thing again, and nothing else is taken for one."""

import base64
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import due_times, examples, identities, names, texts

from postdate.errors import InvalidHandle
from postdate.model.handles import QueueHandle, RowHandle, _text, format_handle, parse_handle
from postdate.model.keys import RowKey, row_key

row_handles = st.builds(row_key, due_times, identities).map(RowHandle)
foreign_handles = st.builds(RowKey, texts, texts).map(RowHandle)
queue_handles = st.builds(QueueHandle, names, names, names, due_times, st.none() | names)
handles = row_handles | foreign_handles | queue_handles

SAMPLES = [
    RowHandle(RowKey("2026030107", "20260301070809_987654_0d6f2c6e4b8a4d3f9a5b7c1e2f304152")),
    RowHandle(RowKey("2026030107", "20260301070809_0d6f2c6e4b8a4d3f9a5b7c1e2f304152")),
    RowHandle(RowKey("elsewhere", "20260301070809_x")),
]


@given(handles)
@examples(30)
def test_a_handle_is_read_back_as_it_was(handle):
    text = format_handle(handle)
    assert parse_handle(text) == handle
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")
    assert text[0].isalpha()  # with a dash in front, a command line would take it for an option


def test_the_key_of_a_row_somebody_else_made_survives():
    for partition, row in [("", ""), ("", "20260301070809_x"), ("2026", "20260301070809_x"), ("a", "b")]:
        handle = RowHandle(RowKey(partition, row))
        assert parse_handle(format_handle(handle)) == handle


@pytest.mark.parametrize("handle", SAMPLES)
def test_every_change_of_one_character_is_refused(handle):
    text = format_handle(handle)
    for position in range(len(text)):
        for char in string.ascii_letters + string.digits + "-_+/= \n.é\ud800":
            if char != text[position]:
                refused(text[:position] + char + text[position + 1 :])


@given(queue_handles, st.data())
@examples(20)
def test_every_change_of_one_character_of_a_queue_handle_is_refused(handle, data):
    text = format_handle(handle)
    position = data.draw(st.integers(0, len(text) - 1))
    for char in string.ascii_letters + string.digits + "-_!":
        if char != text[position]:
            refused(text[:position] + char + text[position + 1 :])


def test_a_handle_with_a_character_too_many_or_too_few_is_refused():
    for handle in SAMPLES:
        text = format_handle(handle)
        for position in range(len(text)):
            refused(text[:position] + text[position + 1 :])
            refused(text[:position] + "!" + text[position:])
        for other in (text + "A", text + "=", text + "\n", " " + text, text + text, text[::-1]):
            refused(other)


@pytest.mark.parametrize(
    "content",
    [[], ["r"], ["r", 1], ["x", "a"], ["q", "a", "b", "c"], None, 5, {}, ["q", "a", "b", "c", 2**62]],
)
def test_a_handle_of_some_other_content_is_refused(content):
    refused(_text(msgspec.msgpack.encode(content)))


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x92\xa1r", b"\xff\xff"])
def test_a_handle_of_broken_content_is_refused(content):
    refused(_text(content))


@pytest.mark.parametrize(
    "other", [None, 5, b"abc", ["r"], "", "a", "=", "🚚", "x" * 10_000_000], ids=lambda o: repr(o)[:9]
)
def test_what_is_no_handle_at_all_is_refused(other):
    refused(other)


@given(st.text(max_size=40) | st.text(alphabet=string.ascii_letters + "_-", max_size=100))
@examples(40)
def test_no_text_that_we_did_not_give_out_is_taken(text):
    refused(text)


def test_the_error_shows_only_the_beginning_of_what_was_passed():
    with pytest.raises(InvalidHandle) as error:
        parse_handle("x\n" * 5000)
    assert len(str(error.value)) < 200


def test_a_handle_is_short_enough_for_a_line():
    assert len(format_handle(SAMPLES[0])) < 100
    assert base64.urlsafe_b64decode(format_handle(SAMPLES[0]) + "==")


def refused(text):
    with pytest.raises(InvalidHandle, match="is not a handle") as error:
        parse_handle(text)
    assert "\n" not in str(error.value)
