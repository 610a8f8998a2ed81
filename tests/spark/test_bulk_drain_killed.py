"""A drain whose workers are killed, whose tasks fail, and whose driver is frozen."""

import signal

import pytest
from bulk_drain_cases import Account, driver, duplicates, serving

from postdate.events import TermBegan
from postdate.model.limits import BATCH_OPERATIONS as BATCH

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A driver in a process of its own, with four attempts for each task, and copies of slow ones."""
    with driver(tmp_path_factory.mktemp("driver")) as running:
        yield running


@pytest.fixture
def account(postdate_settings):
    """An endpoint with a queue and an error queue of its own."""
    return Account(postdate_settings)


def check_nothing_is_lost(account, told, count):
    copies = account.taken()
    assert {one.message_id for one in copies} == {f"m{n:05}" for n in range(count)}
    assert account.waiting() == 0
    twice = duplicates(copies)
    assert set(twice.values()) <= {1}
    assert len(twice) <= told["possible_duplicates"]
    return twice


def test_a_worker_killed_in_the_middle_loses_nothing_and_doubles_at_most_its_last_batch(account, other):
    account.backlog(2000)
    other.begin(account.settings, rows_per_range=500)
    account.until(lambda: account.in_queue() >= 400)
    other.worker(account.settings).kill()
    told = other.told()
    assert (told["end"], told["found"], told["left"], told["killed_attempts"]) == ("done", 2000, 0, 1)
    twice = check_nothing_is_lost(account, told, 2000)
    assert len(twice) <= BATCH
    # All of them from the share whose worker died, and what it handed over is what nobody told of.
    assert len({int(name[1:]) // 500 for name in twice}) <= 1
    assert told["handed_over"] + told["unheard"] == 2000
    assert len(twice) <= told["unheard"] + BATCH


def test_a_task_that_fails_is_run_again_and_doubles_at_most_what_it_was_sending(account, tmp_path, other):
    account.backlog(1200)
    (tmp_path / "fault").touch()
    other.begin(account.settings, fault=tmp_path / "fault", rows_per_range=400)
    told = other.told()
    assert not (tmp_path / "fault").exists()
    assert (told["end"], told["left"], told["killed_attempts"]) == ("done", 0, 1)
    # What it was sending when it was cut off.
    twice = check_nothing_is_lost(account, told, 1200)
    assert len(twice) <= BATCH
    assert len({int(name[1:]) // 400 for name in twice}) <= 1


def test_a_driver_frozen_past_its_lease_has_nothing_sent_in_its_term_any_more(account, other):
    account.backlog(1500)
    heard = []
    other.begin(account.settings, rates={account.queue: 60}, rows_per_range=500)
    account.until(lambda: account.in_queue() >= 100)
    other.process.send_signal(signal.SIGSTOP)
    with serving(account.settings, heard.append):
        account.until(lambda: any(isinstance(one, TermBegan) for one in heard))
        before = account.in_queue()
        account.until(lambda: account.waiting() == 0)
        other.process.send_signal(signal.SIGCONT)
        told = other.told()
    assert told["end"] == "lease lost"
    copies = account.taken()
    old = [one for one in copies if one.term == told["term"]]
    assert 0 < len(old) <= before + BATCH
    assert {one.message_id for one in copies} == {f"m{n:05}" for n in range(1500)}
    assert len(duplicates(copies)) <= told["possible_duplicates"] <= 2 * BATCH
