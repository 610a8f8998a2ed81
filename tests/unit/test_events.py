"""Events: every observer hears every record, the log is one of them, and none can stop the others."""

import logging
from datetime import UTC, datetime

import pytest

from postdate.events import Events, LeaseReleased, MovedToErrorQueue, Scheduled, log_event

DUE = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


def test_every_observer_hears_every_event_in_order():
    heard: list[object] = []
    also: list[object] = []
    events = Events([heard.append])
    events.observe(also.append)
    first, second = LeaseReleased(1), LeaseReleased(2)
    events.emit(first)
    events.emit(second)
    assert heard == also == [first, second]


def test_an_observer_that_fails_is_logged_and_keeps_nobody_from_hearing(caplog):
    heard: list[object] = []

    def broken(event: object) -> None:
        raise RuntimeError("observer is broken")

    events = Events([broken, heard.append])
    with caplog.at_level(logging.ERROR, "postdate"):
        events.emit(LeaseReleased(1))
    assert heard == [LeaseReleased(1)]
    assert "lease_released" in caplog.text
    assert "observer is broken" in caplog.text


def test_an_event_is_logged_in_one_line_with_its_fields(caplog):
    with caplog.at_level(logging.DEBUG, "postdate.events"):
        Events().emit(Scheduled("id-1", "orders\nX", DUE, "row"))
    (record,) = caplog.records
    assert record.getMessage() == (
        r"scheduled message_id='id-1' destination='orders\nX' due_at=2026-03-01T07:08:09.987+00:00 path='row' "
        "hidden_for=0"
    )
    assert (record.name, record.levelno) == ("postdate.events", logging.DEBUG)


def test_the_record_itself_travels_with_its_log_line(caplog):
    event = MovedToErrorQueue("id", "orders", "error", 6, "why")
    with caplog.at_level(logging.DEBUG, "postdate.events"):
        log_event(event)
    (record,) = caplog.records
    assert vars(record)["postdate_event"] is event
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith("attempts=6 reason='why'")


def test_a_level_that_nobody_listens_to_costs_nothing(caplog, monkeypatch):
    monkeypatch.setattr("postdate.events.base._shown", lambda value: pytest.fail("formatted for nobody"))
    with caplog.at_level(logging.INFO, "postdate.events"):
        log_event(Scheduled("id", "orders", DUE, "row"))
    assert caplog.records == []
