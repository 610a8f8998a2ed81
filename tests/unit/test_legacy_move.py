"""A timeout as a message: what is kept, what tells two apart, and what people may see of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from postdate.errors import InvalidHeader
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.legacy_move import (
    Checksum,
    delayed_of,
    fingerprint,
    message_of,
    payload_name,
    shown_address,
)
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.message import Message

DUE = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
TIMEOUT = LegacyTimeout(
    id="t1",
    destination="orders",
    due_at=DUE,
    headers={
        h.MESSAGE_ID: "m1",
        h.TIMEOUT_EXPIRE: "2026-03-01 07:08:09:987654 Z",
        h.TIMEOUT_DESTINATION: "orders",
        "Nothing": None,
    },
    body=b"{}",
    owner="Contoso.Orders",
)
DELAYED = DelayedMessage(Message("m1", {"a": "b"}, b"{}"), "orders", DUE)


def test_the_message_has_its_own_id_and_no_header_of_the_manager():
    assert message_of(TIMEOUT) == Message("m1", {h.MESSAGE_ID: "m1", "Nothing": None}, b"{}")


@pytest.mark.parametrize("headers", [{}, {h.MESSAGE_ID: None}, {h.MESSAGE_ID: ""}])
def test_without_an_id_of_its_own_it_has_that_of_the_timeout(headers):
    assert message_of(replace(TIMEOUT, headers=headers)).message_id == "t1"


@pytest.mark.parametrize("headers", [{"n": 1}, {"": "x"}, {"n": "\ud800"}, None])
def test_headers_that_are_no_text_are_refused(headers):
    if headers is None:
        assert message_of(replace(TIMEOUT, headers=None)).headers == {}
        return
    with pytest.raises(InvalidHeader):
        message_of(replace(TIMEOUT, headers=headers))


def test_the_key_depends_on_the_timeout_alone():
    elsewhere = replace(TIMEOUT, due_at=DUE.astimezone(timezone(timedelta(hours=5))), owner="x", saga_id="s")
    one, two = (delayed_of(each, message_of(each)) for each in (TIMEOUT, elsewhere))
    assert one.key == two.key
    assert one.due_at == two.due_at == DUE
    assert payload_name(TIMEOUT, message_of(TIMEOUT)) == payload_name(elsewhere, message_of(elsewhere))


@pytest.mark.parametrize(
    "other",
    [
        replace(DELAYED, destination="order"),
        replace(DELAYED, due_at=DUE + timedelta(microseconds=1)),
        replace(DELAYED, payload_ref="x"),
        replace(DELAYED, message=Message("m2", {"a": "b"}, b"{}")),
        replace(DELAYED, message=Message("m1", {"a": None}, b"{}")),
        replace(DELAYED, message=Message("m1", {"a": "b", "c": None}, b"{}")),
        replace(DELAYED, message=Message("m1", {"a": "b"}, b"{} ")),
        # The same bytes, cut elsewhere.
        replace(DELAYED, destination="ordersm", message=Message("1", {"a": "b"}, b"{}")),
    ],
)
def test_whatever_differs_gives_another_fingerprint(other):
    assert fingerprint(other) != fingerprint(DELAYED)


def test_attempts_give_the_same_fingerprint():
    tried = replace(DELAYED, failure_count=3, next_attempt_at=DUE, scheduled_at=DUE)
    assert fingerprint(tried) == fingerprint(DELAYED)


def test_a_checksum_depends_on_no_order_and_on_every_part():
    parts = [fingerprint(replace(DELAYED, destination=f"q{n}")) for n in range(50)]
    sums = []
    for order in (parts, parts[::-1], parts[1:], [*parts, parts[0]]):
        checksum = Checksum()
        for part in order:
            checksum.add(part)
        sums.append((checksum.count, checksum.text))
    assert sums[0] == sums[1]
    assert len(set(sums)) == 3
    assert {len(text) for _, text in sums} == {32}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("orders@alias", "orders@alias"),
        ("orders@AccountName=a;AccountKey=c2VjcmV0", "orders@…"),
        ("orders@a;b", "orders@…"),
        ("AccountKey=c2VjcmV0", "…"),
        ("a;b@c", "…"),
    ],
)
def test_people_see_no_connection_string(text, shown):
    assert shown_address(text) == shown
