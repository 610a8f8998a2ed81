"""Job `drain`: a backlog is handed over by many tasks in one term, as a leader would."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from bulk_drain_cases import Account, duplicates, serving

from postdate.errors import ConfigurationError, UsageError
from postdate.events import TermBegan, TermLost
from postdate.model.limits import BATCH_OPERATIONS as BATCH
from postdate.spark.draining import DrainOptions, drain
from postdate.spark.reference import shared_with_tasks


@pytest.fixture
def account(postdate_settings):
    """An endpoint with a queue and an error queue of its own."""
    return Account(postdate_settings)


@pytest.fixture
def reference(account):
    """Where tasks find its settings."""
    with shared_with_tasks(account.settings) as found:
        yield found


def test_a_backlog_is_handed_over_once_and_in_one_term(spark, reference, account):
    account.backlog(700)
    told = drain(spark, reference, DrainOptions(rows_per_range=200))
    copies = account.taken()
    assert sorted(one.message_id for one in copies) == [f"m{n:05}" for n in range(700)]
    assert {one.term for one in copies} == {told.term}
    assert (told.end, told.found, told.handed_over, told.left, told.unheard) == ("done", 700, 700, 0, 0)
    assert told.by_destination == {account.queue: 700}
    assert (told.possible_duplicates, told.failed, told.killed_attempts) == (0, 0, 0)
    assert told.tasks >= 4
    assert account.waiting() == 0
    again = drain(spark, reference)
    assert (again.end, again.found, again.term, again.tasks) == ("done", 0, told.term + 1, 0)


def test_stopped_in_the_middle_nothing_is_doubled_and_the_next_one_goes_on(spark, reference, account):
    account.backlog(1500)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(drain, spark, reference, DrainOptions(rows_per_range=750), stop=stop)
        account.until(lambda: account.in_queue() >= 100)
        stop.set()
        told = running.result()
    assert told.end == "stopped"
    assert 0 < told.handed_over < 1500
    assert told.left == account.waiting() == 1500 - told.handed_over
    assert told.possible_duplicates == 0
    rest = drain(spark, reference)
    assert (rest.end, rest.handed_over) == ("done", told.left)
    copies = account.taken()
    assert len(copies) == len({one.message_id for one in copies}) == 1500


def test_when_the_lease_is_lost_tasks_stop_within_a_batch(spark, reference, account):
    account.backlog(2000)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(drain, spark, reference, DrainOptions(rows_per_range=1000))
        account.until(lambda: account.in_queue() >= 100)
        assert account.run(lambda endpoint: endpoint.parts.backend.lease.break_lease())
        before = account.in_queue()
        told = running.result()
    assert told.end == "lease lost"
    assert account.in_queue() - before <= told.tasks * BATCH
    assert told.left == account.waiting() >= 2000 - account.in_queue()
    rest = drain(spark, reference)
    assert (rest.end, account.waiting()) == ("done", 0)
    copies = account.taken()
    assert len({one.message_id for one in copies}) == 2000
    assert len(duplicates(copies)) <= told.possible_duplicates <= told.tasks * BATCH


def test_what_can_not_be_sent_is_tried_again_later_and_ends_in_the_error_queue(spark, reference, account):
    account.backlog(30)
    account.backlog(20, to="nowhere", prefix="n")
    account.backlog(10, to="gone", prefix="g")
    told = drain(spark, reference)
    assert (told.handed_over, told.failed, told.moved_to_error_queue, told.left) == (30, 30, 0, 30)
    for moved, update in ((0, {}), (30, {"number_of_retries": 1})):
        account.until(lambda: account.next_attempts_are_due())
        with shared_with_tasks(account.settings.model_copy(update=update)) as found:
            told = drain(spark, found)
        assert (told.handed_over, told.moved_to_error_queue, told.failed) == (0, moved, 30 - moved)
    assert account.waiting() == 0
    assert len(account.taken(account.settings.error_queue)) == 30


def test_large_bodies_arrive(spark, reference, account):
    body = "x" * 200_000
    account.backlog(3, body=body)
    drain(spark, reference)

    async def receive(endpoint):
        return [one.body async for one in endpoint.receive(idle=timedelta(seconds=0.1))]

    assert account.run(receive) == [body.encode()] * 3


def test_a_paced_destination_stays_within_its_rate_and_holds_up_no_other(spark, reference, account):
    slow_queue = f"{account.queue}-slow"
    account.run(lambda endpoint: endpoint.setup(slow_queue))
    account.backlog(300, to=slow_queue, prefix="s")
    account.backlog(300)
    told = drain(spark, reference, DrainOptions(rates={slow_queue: 60}, rows_per_range=150))
    slow = sorted(one.inserted_at for one in account.taken(slow_queue))
    fast = [one.inserted_at for one in account.taken()]
    assert (len(slow), len(fast), told.possible_duplicates) == (300, 300, 0)
    assert (slow[-1] - slow[0]).total_seconds() >= 300 / 60 - 2
    # Instants are cut to whole seconds; a tick's worth may stand at either end of one.
    assert max(Counter(slow).values()) <= 60 * 1.3
    assert max(fast) < slow[200]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (DrainOptions(rates={"target": 0}), "the rate of target is 0; write messages per second"),
        (DrainOptions(rates={"target": float("nan")}), "the rate of target is nan"),
        (DrainOptions(rates={"No Queue": 1}), "queue name 'No Queue' is not valid"),
        (DrainOptions(rows_per_range=0), "rows_per_range is 0"),
    ],
)
def test_options_that_can_not_be_are_refused(spark, reference, options, said):
    with pytest.raises(UsageError, match=said):
        drain(spark, reference, options)


def test_a_store_of_ones_own_is_refused(spark, account):
    settings = account.settings.model_copy(update={"store": "module:factory"})
    with shared_with_tasks(settings) as found, pytest.raises(ConfigurationError, match="POSTDATE_STORE"):
        drain(spark, found)


def test_a_running_leader_steps_aside_and_takes_over_again(spark, reference, account):
    heard = []
    with serving(account.settings, heard.append):
        account.until(lambda: any(isinstance(one, TermBegan) for one in heard))
        stop = threading.Event()
        threading.Timer(1, stop.set).start()
        waited = drain(spark, reference, stop=stop)
        assert (waited.term, waited.end) == (0, "stopped")
        told = drain(spark, reference, DrainOptions(take_over=True))
        first = next(one for one in heard if isinstance(one, TermBegan))
        assert told.term > first.term
        account.until(lambda: sum(isinstance(one, TermBegan) for one in heard) == 2)
        lost = next(one for one in heard if isinstance(one, TermLost))
        assert (lost.term, lost.reason) == (first.term, "lost")
        account.backlog(5)
        account.until(lambda: account.in_queue() == 5)
    assert {one.term for one in account.taken()} == {told.term + 1}
