"""One task of a drain, without Spark: it sends only while the term stands, and only one attempt does.

Spark starts copies of slow tasks on other hosts only, so here two attempts are two threads.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import pyarrow as pa
import pytest
from azure.storage.blob import BlobLeaseClient, ContainerClient
from bulk_drain_cases import Account

from postdate.errors import PostdateError
from postdate.spark.draining.leading import leading
from postdate.spark.draining.order import Order
from postdate.spark.draining.tally import LOST, Claim
from postdate.spark.draining.task import drain_share
from postdate.spark.ranges import KeyRange
from postdate.spark.reference import shared_with_tasks


@pytest.fixture
def account(postdate_settings):
    """An endpoint with a queue of its own."""
    return Account(postdate_settings)


@pytest.fixture
def reference(account):
    """Where tasks find its settings."""
    with shared_with_tasks(account.settings) as found:
        yield found


@pytest.fixture
def order(reference):
    """Of a drain whose one task has all rows, in a term that stands."""
    with leading(reference, threading.Event(), take_over=False) as led:
        yield Order(str(led.term), led.term, led.lease_id, [[KeyRange()]], {})


def attempt(reference, order):
    """What one attempt of the task tells."""
    batch = pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])
    (answer,) = drain_share(reference, order, iter([batch]))
    return Claim.read(answer.column(1)[0].as_py())


def claim_of(account, order):
    """The blob that attempts of the task claim."""
    connection = account.settings.connection.get_secret_value()
    container = ContainerClient.from_connection_string(
        connection, account.settings.table_name, api_version="2025-11-05"
    )
    return container.get_blob_client(f"bulk/{order.claim(0)}")


def test_of_two_attempts_one_sends_and_the_other_tells_what_that_did(account, reference, order):
    account.backlog(600)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(attempt, repeat(reference, 2), repeat(order, 2))
    assert first == second
    assert (first.attempts, first.told.sent, first.told.unheard, first.told.doubtful(100)) == (1, 600, 0, 0)
    copies = account.taken()
    assert len(copies) == len({one.message_id for one in copies}) == 600


def test_nothing_is_sent_with_an_id_that_proves_nothing(account, reference, order):
    account.backlog(20)
    told = attempt(reference, replace(order, lease_id="11111111-2222-4333-8444-555555555555"))
    assert (told.told.end, told.told.sent) == (LOST, 0)
    assert (account.in_queue(), account.waiting()) == (0, 20)


def test_an_attempt_that_lost_its_claim_ends_and_leaves_the_rest_to_the_other(account, reference, order):
    account.backlog(1500)
    paced = replace(order, rates={account.queue: 100})  # longer than it takes to prolong a claim
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(attempt, reference, paced)
        account.until(lambda: account.in_queue() >= 50)
        blob = claim_of(account, order)
        BlobLeaseClient(blob).break_lease(lease_break_period=0)
        BlobLeaseClient(blob).acquire(lease_duration=15)
        with pytest.raises(PostdateError, match="another attempt took it over"):
            running.result()
    assert account.waiting() > 0


def test_a_lease_id_is_not_shown(order):
    assert order.lease_id not in repr(order)
