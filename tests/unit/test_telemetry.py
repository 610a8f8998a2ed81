"""Metrics tell what happened, through the real OpenTelemetry SDK."""

from contextlib import ExitStack
from datetime import timedelta

import pytest
from engine_cases import open_world
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from receiver_cases import QUEUE, open_scene, serving_open

from postdate import Recoverability
from postdate.clock import StorageClock
from postdate.core.recoverability import Discard, default_policy
from postdate.model.requests import Outcome, RequestCounter, RequestKind, Service
from postdate.telemetry import Metrics
from postdate.testing.clock import VirtualClock


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader):
    opened = MeterProvider([reader])
    yield opened
    opened.shutdown()


def points(reader):
    """The data points of each instrument, by name."""
    return points_of(reader.get_metrics_data())


def points_of(data):
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


def points_or_none(reader):
    """The same where there may be nothing at all."""
    data = reader.get_metrics_data()
    return points_of(data) if data is not None and data.resource_metrics else {}


async def test_scheduling_delivering_and_failing_are_counted(reader, provider):
    async with open_world(number_of_retries=0, lookahead=0) as world:
        world.endpoint.parts.events.observe(Metrics("Unit.Tests", provider))
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("orders", "x", delay=10)
        await world.endpoint.schedule("gone", "y", delay=10)
        await world.backend.sender.delete("gone")
        await world.clock.advance(12)
        await world.endpoint.deliver_due()
    found = points(reader)
    assert [(p.value, p.attributes["postdate.path"]) for p in found["postdate.scheduled"]] == [(2, "row")]
    assert [p.value for p in found["postdate.handed_over"]] == [1]
    (lateness,) = found["postdate.lateness"]
    assert (lateness.count, lateness.sum) == (1, 2.0)
    assert [p.value for p in found["postdate.errors"]] == [1]
    assert [p.value for p in found["postdate.removed"]] == [2]
    assert [p.value for p in found["postdate.leader"]] == [0]
    assert found["postdate.errors"][0].attributes["postdate.endpoint"] == "Unit.Tests"


async def test_handling_retrying_discarding_and_giving_up_are_counted(reader, provider):
    def policy(config, context):
        return Discard("stale") if context.body == b"stale" else default_policy(config, context)

    async with open_scene() as scene:
        endpoint = scene.endpoint(
            recoverability=Recoverability(policy=policy), immediate_retries=2, delayed_retries=1
        )

        @endpoint.handler
        async def work(body: bytes) -> None:
            if body != b"fine":
                raise RuntimeError("no")

        for number, body in enumerate([b"fine", b"stale", b"bad"]):
            await scene.put(f"m{number}", body)
        async with endpoint:
            endpoint.parts.events.observe(Metrics("Orders", provider))
            async with serving_open(endpoint):
                await scene.clock.advance(20)
    found = points(reader)
    assert [p.value for p in found["postdate.handled"]] == [1]
    assert [p.count for p in found["postdate.handling"]] == [1]
    assert {p.attributes["postdate.kind"]: p.value for p in found["postdate.retries"]} == {
        "immediate": 4,
        "delayed": 1,
    }
    assert [(p.value, p.attributes["postdate.destination"]) for p in found["postdate.discarded"]] == [
        (1, QUEUE)
    ]
    assert [(p.value, p.attributes["postdate.destination"]) for p in found["postdate.errors"]] == [(1, QUEUE)]


@pytest.fixture
def watched(reader, provider):
    """Two open endpoints on one provider; of each its requests, and a clock that has seen one answer."""
    with ExitStack() as stack:
        opened = {}
        for name, ahead in (("One", 30), ("Two", -5)):
            local, requests = VirtualClock(), RequestCounter()
            clock = StorageClock(local)
            stack.enter_context(Metrics(name, provider).watching(clock, requests))
            opened[name] = (clock, local, requests, timedelta(seconds=ahead))
        yield opened


def by_endpoint(found, name):
    return {point.attributes["postdate.endpoint"]: point for point in found.get(name, [])}


def test_requests_of_each_endpoint_are_read_when_somebody_asks(reader, watched):
    _, _, requests, _ = watched["One"]
    requests.add(RequestKind(Service.TABLE, "query"), Outcome.OK)
    requests.add(RequestKind(Service.TABLE, "query"), Outcome.OK)
    _, _, others, _ = watched["Two"]
    others.add(RequestKind(Service.QUEUE, "put message"), Outcome.THROTTLED)
    found = by_endpoint(points(reader), "postdate.storage.requests")
    assert {name: point.value for name, point in found.items()} == {"One": 2, "Two": 1}
    assert dict(found["Two"].attributes) == {
        "postdate.endpoint": "Two",
        "postdate.service": "queue",
        "postdate.operation": "put message",
        "postdate.outcome": "throttled",
    }


def test_the_storage_clocks_offset_and_uncertainty_are_gauges(reader, watched):
    for clock, local, _, ahead in watched.values():
        date = (local.now() + ahead).replace(microsecond=0)
        clock.observe(date, sent=local.monotonic(), received=local.monotonic())
    found = points(reader)
    offsets = by_endpoint(found, "postdate.clock.offset")
    # One answer tells the service's clock to a second: the middle of it is half a second on.
    assert {name: point.value for name, point in offsets.items()} == pytest.approx({"One": 30.5, "Two": -4.5})
    assert by_endpoint(found, "postdate.clock.uncertainty")["One"].value == pytest.approx(1.0)


def test_a_clock_that_knows_nothing_yet_and_a_closed_endpoint_tell_nothing(reader, provider):
    with Metrics("Three", provider).watching(StorageClock(VirtualClock()), RequestCounter()):
        found = points_or_none(reader)
        assert "postdate.clock.offset" not in found
    clock = StorageClock(local := VirtualClock())
    clock.observe(local.now(), sent=local.monotonic(), received=local.monotonic())
    with Metrics("Four", provider).watching(clock, RequestCounter()):
        assert "postdate.clock.offset" in points_or_none(reader)
    assert "postdate.clock.offset" not in points_or_none(reader)


async def test_an_endpoint_watches_itself_while_it_is_open(monkeypatch, reader, provider):
    monkeypatch.setattr("postdate.compose.Metrics", lambda endpoint: Metrics(endpoint, provider))
    async with open_world() as world:
        world.backend.requests.add(RequestKind(Service.BLOB, "renew lease"), Outcome.REFUSED)
        found = points(reader)
        assert by_endpoint(found, "postdate.storage.requests")["Unit.Tests"].value == 1
        # The memory backend's clock is the local one: sure, and offset by nothing that could be told.
        assert by_endpoint(found, "postdate.clock.uncertainty")["Unit.Tests"].value == 0
        assert "postdate.clock.offset" not in found
    assert "postdate.storage.requests" not in points_or_none(reader)
