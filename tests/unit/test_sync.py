"""The synchronous facade: the same endpoint without `await`."""

import inspect
import itertools
import threading
from datetime import timedelta

import pytest

from postdate import Endpoint as AsyncEndpoint
from postdate import Outgoing, UsageError
from postdate.backends.memory import MemoryAccount
from postdate.events import TermBegan
from postdate.sync import Endpoint


@pytest.fixture
def endpoint():
    with Endpoint("Sync.Tests", backend="memory", lookahead=0) as opened:
        opened.setup("orders")
        yield opened


def test_it_offers_what_the_asynchronous_one_offers_with_the_same_arguments():
    for name, method in inspect.getmembers(AsyncEndpoint, inspect.isfunction):
        if name.startswith("_") or name == "run":
            continue
        ours = inspect.signature(getattr(Endpoint, name)).parameters
        theirs = inspect.signature(method).parameters
        assert list(ours) == list(theirs), name


def test_a_message_goes_in_and_comes_out(endpoint):
    endpoint.schedule("orders", {"n": 1}, delay=-1)
    (delivery,) = list(endpoint.receive("orders", idle=timedelta(0)))
    assert delivery.json() == {"n": 1}
    assert delivery.ack() is True
    assert delivery.ack() is False


def test_rows_are_listed_moved_cancelled_and_delivered(endpoint):
    handle = endpoint.schedule("orders", "x", delay=3600)
    assert [m.body for m in endpoint.upcoming()] == [b"x"]
    moved = endpoint.reschedule(handle, delay=7200)
    assert endpoint.get(moved.handle).due_at == moved.due_at
    assert endpoint.cancel(moved.handle) == "cancelled"
    assert endpoint.deliver_due().led is True
    result = endpoint.schedule_many(Outgoing("orders", n, delay=60) for n in range(3))
    assert len(result.handles) == 3


def test_many_are_told_one_by_one_and_who_stops_asking_stops_it(endpoint):
    outcomes = list(endpoint.schedule_each(Outgoing("orders", n, delay=60) for n in range(3)))
    assert [(o.index, o.error) for o in outcomes] == [(0, None), (1, None), (2, None)]
    told = []
    endpoint.schedule_many([Outgoing("orders", "x", delay=60)], progress=told.append)
    assert [p.accepted for p in told] == [1]
    endless = (Outgoing("orders", n, delay=60) for n in itertools.count())
    stream = endpoint.schedule_each(endless)
    assert next(stream).index == 0
    stream.close()
    read = next(endless).body
    assert endpoint.cancel(outcomes[0].handle) == "cancelled"
    assert next(endless).body == read + 1  # nobody reads on


def test_errors_are_raised_where_the_call_stands(endpoint):
    with pytest.raises(UsageError, match="'orders'"):
        endpoint.send("Orders", "x")


def test_many_threads_may_share_one_endpoint(endpoint):
    threads = [
        threading.Thread(target=endpoint.schedule, args=("orders", n), kwargs={"delay": 60})
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(endpoint.upcoming())) == 20


def test_run_serves_until_another_thread_stops_it():
    led = threading.Event()

    def hear(event):
        if isinstance(event, TermBegan):
            led.set()

    with Endpoint("Sync.Tests", backend="memory", observers=[hear]) as endpoint:
        endpoint.setup()
        serving = threading.Thread(target=endpoint.run)
        serving.start()
        assert led.wait(10)
        endpoint.stop()
        serving.join(10)
        assert not serving.is_alive()


def test_stop_before_run_makes_run_return_at_once(endpoint):
    endpoint.stop()
    endpoint.run()


def test_an_endpoint_can_be_opened_again_and_says_when_it_is_closed():
    account = MemoryAccount()
    endpoint = Endpoint("Sync.Tests", backend="memory", memory=account)
    for _ in range(2):
        with endpoint:
            endpoint.setup("orders")
    with pytest.raises(UsageError, match="not open"):
        endpoint.send("orders", "x")
    assert threading.active_count() == 1 or not any(
        thread.name == "postdate-sync" for thread in threading.enumerate()
    )


def test_leaving_a_receive_early_is_clean(endpoint):
    for n in range(3):
        endpoint.send("orders", n)
    for _ in endpoint.receive("orders", batch=1):
        break
    assert len(list(endpoint.receive("orders", idle=timedelta(0)))) == 2


async def test_it_can_be_used_where_a_loop_runs_already_as_in_a_notebook():
    with Endpoint("Sync.Tests", backend="memory") as endpoint:
        endpoint.setup("orders")
        endpoint.send("orders", "x")
        assert len(list(endpoint.receive("orders", idle=timedelta(0)))) == 1
