"""The demo's checks can fail: each thing that must not happen is told, and ends in exit code 1."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from postdate import CancelOutcome
from postdate.demo.ledger import Ledger, percentile
from postdate.demo.play import Options, play, settings_for
from postdate.demo.processes import environment_of
from postdate.demo.scenario import Change, write_scenario
from postdate.demo.summary import sum_up
from postdate.errors import UsageError
from postdate.events import Scheduled
from postdate.model import headers as h

DUE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FAULT = {
    h.FAILED_QUEUE: "gone",
    h.EXCEPTION_TYPE: "DestinationNotFound",
    h.EXCEPTION_MESSAGE: "it is not there",
    h.TIME_OF_FAILURE: "2026-03-01 12:00:00:000000 Z",
    h.ATTEMPTS: "4",
}


def copy(message_id: str, native_id: str = "1", headers=None):
    return SimpleNamespace(
        message_id=message_id, headers=headers or {}, received=SimpleNamespace(native_id=native_id)
    )


class Book(Ledger):
    """Three messages that are as they should be."""

    def __init__(self):
        super().__init__()
        for message_id, path in (("arrives", "row"), ("cancelled", "queue"), ("doomed", "row")):
            self.observe(Scheduled(message_id, "orders", DUE, path))
        self.arrived(copy("arrives"), DUE + SECOND)
        self.cancelled("cancelled", CancelOutcome.CANCELLED)
        self.doomed("doomed")
        self.failed(copy("doomed", headers=FAULT))


def summary(ledger: Ledger, **fleet):
    values = {"killed": SimpleNamespace(pid=7), "takeover_s": 12.3, "handed_over_at_kill": 5, "exits": [0, 0]}
    return sum_up(ledger, SimpleNamespace(**values | fleet), settings_for(Options(), "x=y"), 60.0)


def test_a_run_without_a_flaw():
    result = summary(Book())
    assert result.ok
    assert result.line == (
        "scheduled 3, delivered 1, cancelled 1, to error queue 1, lost 0, early 0, duplicates 0, "
        "take-over 12.30 s, lateness p50/p99/max 1.00/1.00/1.00 s"
    )


def test_what_never_arrived_is_lost():
    book = Book()
    book.observe(Scheduled("missing", "orders", DUE, "row"))
    result = summary(book)
    assert (result.lost, result.problems) == (1, ("lost: missing",))


def test_what_arrived_before_its_due_time_is_early():
    book = Book()
    book.observe(Scheduled("hasty", "orders", DUE, "queue"))
    book.arrived(copy("hasty"), DUE - SECOND / 1000)
    result = summary(book)
    assert (result.early, result.problems) == (1, ("early: hasty",))


def test_a_moved_message_is_judged_by_its_new_due_time():
    book = Book()
    book.moved("arrives", "moved", DUE + 2 * SECOND)
    assert summary(book).early == 1


def test_a_cancelled_message_must_not_arrive():
    book = Book()
    book.arrived(copy("cancelled"), DUE + SECOND)
    result = summary(book)
    assert (result.cancelled_but_arrived, result.problems) == (1, ("cancelled, but arrived: cancelled",))


def test_a_change_that_came_too_late_leaves_the_message_to_arrive():
    book = Book()
    book.observe(Scheduled("kept", "orders", DUE, "row"))
    book.cancelled("kept", CancelOutcome.TOO_LATE)
    assert (summary(book).too_late, summary(book).lost) == (1, 1)
    book.arrived(copy("kept"), DUE)
    assert summary(book).ok


def test_a_change_of_a_waiting_message_must_not_be_unknown():
    book = Book()
    book.cancelled("arrives", CancelOutcome.UNKNOWN)
    assert summary(book).problems == ("a change of arrives was answered with 'unknown'",)


def test_another_copy_is_a_duplicate_and_the_same_one_again_is_not():
    book = Book()
    book.arrived(copy("arrives", "2"), DUE + 9 * SECOND)
    book.arrived(copy("arrives", "2"), DUE + 9 * SECOND)
    result = summary(book)
    assert (result.duplicates, result.redelivered, result.lateness_max_s) == (1, 1, 1.0)
    assert result.ok
    for number in range(100):
        book.arrived(copy("arrives", f"more {number}"), DUE + SECOND)
    assert summary(book).problems == ("101 duplicates; a killed leader leaves at most 100 rows unremoved",)


def test_only_the_doomed_message_may_go_to_the_error_queue_and_with_its_headers():
    book = Book()
    book.failed(copy("arrives", headers=FAULT))
    book.failed(copy("doomed", headers=FAULT | {h.ATTEMPTS: None}))
    assert summary(book).problems == (
        "message 'arrives' went to the error queue: it is not there",
        f"message 'doomed' failed without {h.ATTEMPTS}",
    )


def test_what_nobody_scheduled_is_told():
    book = Book()
    book.arrived(copy("stray"), DUE)
    book.failed(copy("stray", headers=FAULT))
    assert len(summary(book).problems) == 2


@pytest.mark.parametrize(
    ("fleet", "problem"),
    [
        ({"killed": None}, "no leader was killed"),
        ({"takeover_s": None}, "nobody took over"),
        ({"exits": [0, 1]}, "did not stop cleanly"),
    ],
)
def test_a_show_without_its_main_scene_fails(fleet, problem):
    [told] = summary(Book(), **fleet).problems
    assert problem in told


def test_the_scenario_has_all_that_the_demo_shows():
    scenario = write_scenario(1000, 60.0, 20.0)
    messages = scenario.messages
    assert len({one.message_id for one in messages}) == 1000
    assert [one.send_at for one in messages] == sorted(one.send_at for one in messages)
    assert max(one.send_at for one in messages) <= 20
    delays = [one.due_at - one.send_at for one in messages]
    assert 2 <= min(delays) <= 3
    assert 29 <= max(delays) <= 30
    assert sum(one.doomed for one in messages) == 1
    assert min(sum(one.change is kind for one in messages) for kind in (Change.CANCEL, Change.MOVE)) > 30
    assert 0.3 < scenario.rows / len(messages) < 0.5
    assert scenario.ends_at <= 60
    assert write_scenario(1000, 60.0, 20.0) == scenario


@pytest.mark.parametrize("options", [Options(messages=9), Options(seconds=9), Options(seconds=float("nan"))])
async def test_a_run_that_is_too_small_is_refused_before_anything_starts(options):
    with pytest.raises(UsageError, match="at least 10 messages and 10 seconds"):
        await play(options, lambda _: None)


def test_the_processes_get_the_settings_and_nothing_of_the_environment(monkeypatch, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('guarantee = "at_most_once"\ndelays_table = "theirs"\n', encoding="utf-8")
    monkeypatch.setenv("POSTDATE_DISABLE_DELAYED_DELIVERY", "1")
    monkeypatch.setenv("POSTDATE_SETTINGS_FILE", str(file))
    environment = environment_of(settings_for(Options(lookahead=timedelta(0)), "x=y"))
    given = {name: value for name, value in environment.items() if name.startswith("POSTDATE_")}
    assert given == {
        "POSTDATE_ENDPOINT": "postdate-demo",
        "POSTDATE_CONNECTION": "x=y",
        "POSTDATE_LOOKAHEAD": "0s",
        "POSTDATE_DIRECT_WITHIN": "0s",
        "POSTDATE_IDLE_INTERVAL": "1s",
        "POSTDATE_NUMBER_OF_RETRIES": "3",
        "POSTDATE_RETRY_BASE": "0.5s",
    }


def test_percentiles_are_values_that_occurred():
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0
