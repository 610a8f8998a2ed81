"""The events that operators and dashboards match on: all listed, named and explained."""

import dataclasses
import inspect
import logging
import re

import pytest

from postdate import events
from postdate.events import EVENTS, Event

#: Names in logs and metrics. A change here is a change of the promise: say so in the changelog.
APPROVED = [
    "already_handled",
    "back_to_speed",
    "breaker_armed",
    "breaker_disarmed",
    "breaker_triggered",
    "cancelled",
    "clock_unsure",
    "delayed_retry_asked",
    "delivery_log_failed",
    "delivery_log_lost",
    "dispatch_failed",
    "duplicate_dropped",
    "error_queue_refused",
    "expired",
    "handed_over",
    "handled",
    "handler_abandoned",
    "handler_slow",
    "immediate_retry_asked",
    "inbox_call_failed",
    "inbox_claim_lost",
    "inbox_forgot",
    "inbox_repeat",
    "lease_failed",
    "lease_released",
    "loop_blocked",
    "message_discarded",
    "message_failed",
    "message_lost",
    "message_returned",
    "moved_to_error_queue",
    "no_place_left",
    "pass_failed",
    "pass_finished",
    "payloads_swept",
    "poison_moved",
    "policy_failed",
    "receive_failed",
    "recovery_failed",
    "remove_failed",
    "removed",
    "requests_counted",
    "rescheduled",
    "scheduled",
    "slowed_down",
    "term_began",
    "term_ended",
    "term_lost",
    "throttled",
    "timeout_failed",
    "timeout_leftovers_removed",
    "timeout_look_failed",
    "timeout_manager_drained",
    "timeout_manager_failing",
    "timeout_message_failed",
    "timeout_store_missing",
    "timeout_stored",
    "timeout_taken_elsewhere",
    "timeout_unreadable",
    "timeouts_cleared",
    "timeouts_moved",
    "timeouts_put_back",
    "visibility_lost",
]


def test_the_names_of_events_are_the_approved_ones():
    assert sorted(event.name for event in EVENTS) == APPROVED


def test_every_record_is_listed():
    records = [kind for kind in vars(events).values() if inspect.isclass(kind) and issubclass(kind, Event)]
    assert set(EVENTS) == set(records) - {Event}


@pytest.mark.parametrize("event", EVENTS)
def test_every_record_is_frozen_and_says_what_happened(event):
    assert event.__doc__
    assert event.__doc__ != Event.__doc__
    assert not event.__doc__.startswith(f"{event.__name__}(")
    assert event.__dataclass_params__.frozen
    assert dataclasses.fields(event)


@pytest.mark.parametrize("event", EVENTS)
def test_the_name_of_a_record_is_that_of_its_class(event):
    assert event.name == re.sub(r"(?<!^)(?=[A-Z])", "_", event.__name__).lower()


@pytest.mark.parametrize("event", EVENTS)
def test_a_record_is_logged_at_a_level_that_fits(event):
    assert event.level in {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR}
    if re.search("fail|refus|lost", event.name):
        assert event.level >= logging.WARNING


@pytest.mark.parametrize("event", EVENTS)
def test_no_field_of_a_record_may_hold_a_body_or_a_header(event):
    assert {field.name for field in dataclasses.fields(event)}.isdisjoint({"body", "headers", "message"})
