"""Metrics tell what happened, through the real OpenTelemetry SDK."""

import pytest
from engine_cases import open_world
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from postdate.telemetry import Metrics


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
    (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


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
