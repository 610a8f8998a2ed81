"""By what an inbox finds a message again: the same for every delivery, of every copy."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import due_times, examples, texts

from postdate.errors import InvalidBody, PoisonMessage
from postdate.model import headers as h
from postdate.model.inbox import (
    PIECE_BYTES,
    Asked,
    InboxKey,
    KeptMessage,
    Outcome,
    behind,
    check_consumer,
    consumer_of,
    decode_outcome,
    encode_outcome,
    encode_record,
    first_instant,
    keep_message,
    next_turn,
    old_partitions,
    pieces,
    turn_of,
)
from postdate.model.limits import KEY_UNITS
from postdate.model.names import delays_table, inbox_table

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SENT, DUE, RETRIED = (h.format_instant(NOON + n * HOUR) for n in (1, 2, 3))
consumers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", fullmatch=True)


@pytest.mark.parametrize(
    ("headers", "hours"),
    [
        ({}, 0),
        ({h.TIME_SENT: SENT}, 1),
        ({h.TIME_SENT: SENT, h.DELIVER_AT: DUE}, 2),
        ({h.TIME_SENT: "yesterday", h.DELIVER_AT: None}, 0),
        # A retry of ours has changed the due time, and kept the first instant.
        ({h.TIME_SENT: SENT, h.DELIVER_AT: RETRIED, h.RETRIES: "1", h.FIRST_INSTANT: DUE}, 2),
        # The operator's retry: the retry headers are gone.
        ({h.TIME_SENT: SENT, h.DELIVER_AT: RETRIED, h.FIRST_INSTANT: DUE}, 2),
        # Somebody else's retry has changed the due time.
        ({h.TIME_SENT: SENT, h.DELIVER_AT: RETRIED, h.RETRIES: "1"}, 1),
    ],
)
def test_the_first_instant_is_that_which_no_retry_changes(headers, hours):
    assert first_instant(headers, NOON) == NOON + hours * HOUR


def test_a_turn_behind_a_deferral_is_handled_once_of_its_own():
    assert turn_of("m", {}) == "m"
    headers = {}
    seen = ["m"]
    for _ in range(3):
        headers = {h.TURN: next_turn(headers)}
        seen.append(turn_of("m", headers))
    assert seen == ["m", "m#1", "m#2", "m#3"]
    assert next_turn({h.TURN: "x"}) == "1"


@given(consumers, texts.filter(bool), due_times)
@examples(200)
def test_a_place_is_of_its_consumer_and_day_and_fits_a_key(consumer, message_id, at):
    place = InboxKey(consumer, message_id, at).place
    assert consumer_of(place.partition) == consumer
    assert place.partition.split("_")[1] == at.date().isoformat()
    assert len(place.partition) <= KEY_UNITS
    assert place == InboxKey(consumer, message_id, at.astimezone(timezone(5 * HOUR))).place


@given(consumers, due_times, due_times)
@examples(200)
def test_old_is_what_came_on_a_day_before(consumer, at, before):
    first, end = old_partitions(consumer, before)
    partition = InboxKey(consumer, "m", at).place.partition
    assert (first <= partition < end) == (at.date() < before.date())


@given(consumers, consumers, due_times, due_times)
@examples(300)
def test_no_range_of_a_consumer_holds_another_ones_partition(one, other, at, before):
    if one == other:
        return
    first, end = old_partitions(one, before)
    partition = InboxKey(other, "m", at).place.partition
    assert not first <= partition < end
    ours = InboxKey(one, "m", at).place.partition
    # The walk from consumer to consumer skips nobody.
    assert ours < behind(one)
    assert not ours < partition < behind(one)


def test_many_messages_of_a_day_lie_in_several_partitions():
    partitions = {InboxKey("c", f"m{n}", NOON).place.partition for n in range(500)}
    assert len(partitions) == 16


def test_the_table_is_named_after_the_endpoint():
    assert inbox_table("Contoso.Orders") == "inbox" + delays_table("Contoso.Orders").removeprefix("delays")
    assert inbox_table("", "MyInbox") == "myinbox"


def test_a_consumer_of_the_longest_name_is_taken():
    assert check_consumer("a" * 63) == "a" * 63


@given(
    st.lists(
        st.builds(
            KeptMessage,
            destination=texts,
            message_id=texts,
            body=st.binary(max_size=40),
            headers=st.dictionaries(texts, st.none() | texts, max_size=3),
            at=st.none() | due_times,
            expires_after=st.none() | st.floats(0, 1e9),
        ),
        max_size=3,
    ),
    st.none() | texts,
)
@examples(200)
def test_an_outcome_comes_back_as_it_was(messages, payload):
    outcome = Outcome(tuple(messages), payload)
    content = encode_outcome(outcome)
    assert decode_outcome(content) == outcome
    assert b"".join(pieces(content)) == content
    assert all(len(piece) <= PIECE_BYTES for piece in pieces(content))


def test_no_messages_are_no_bytes():
    assert encode_outcome(Outcome()) == b""
    assert decode_outcome(b"") == Outcome()
    assert pieces(b"") == [b""]


def test_what_is_no_outcome_is_told():
    with pytest.raises(PoisonMessage, match="can't be read"):
        decode_outcome(b"{")


def test_a_kept_message_holds_all_that_a_dispatch_would_make_anew():
    at = NOON + HOUR
    kept = keep_message(Asked("invoices", {"a": 1}, at, {"X": None}), "id", {h.RELATED_TO: "m"}, NOON)
    assert kept.headers == {
        h.CONTENT_TYPE: "application/json",
        h.TIME_SENT: h.format_instant(NOON),
        h.RELATED_TO: "m",
        h.DELIVER_AT: h.format_instant(at),
        "X": None,
    }
    assert keep_message(Asked("q", b"", NOON - HOUR), "id", {}, NOON).headers.get(h.DELIVER_AT) is None
    assert (
        keep_message(Asked("q", b"", headers={h.TIME_SENT: "x"}), "id", {}, NOON).headers[h.TIME_SENT] == "x"
    )


def test_a_record_is_json_and_not_too_large():
    assert encode_record("a", {"n": [1, None]}) == b'{"n":[1,null]}'
    with pytest.raises(InvalidBody, match="record 'a' can't be encoded"):
        encode_record("a", object())
    with pytest.raises(InvalidBody, match="has 60,002 bytes as JSON; it takes 60,000"):
        encode_record("a", "x" * PIECE_BYTES)
