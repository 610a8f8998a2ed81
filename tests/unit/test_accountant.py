"""Telling of requests: every five minutes while serving, at the end of it, and when the endpoint is closed."""

import asyncio

import pytest
from engine_cases import open_world

from postdate.errors import ConfigurationError
from postdate.events import RequestsCounted
from postdate.model.requests import Outcome, RequestKind, Service

QUERY = RequestKind(Service.TABLE, "query")
PUT = RequestKind(Service.QUEUE, "put message")
ODD = RequestKind(Service.BLOB, "unknown")


def ask(world, kind, outcome=Outcome.OK, count=1):
    """As a backend that makes requests would count them; that in memory makes none."""
    for _ in range(count):
        world.backend.requests.add(kind, outcome)


async def test_each_record_tells_of_the_requests_since_the_one_before():
    async with open_world() as world:
        stop = asyncio.Event()
        running = asyncio.create_task(world.endpoint.run(stop))
        await world.clock.advance(1)
        ask(world, QUERY, count=3)
        await world.clock.advance(300)
        ask(world, QUERY, Outcome.THROTTLED)
        ask(world, PUT, Outcome.REFUSED)
        await world.clock.advance(100)
        stop.set()
        await running
        first, second = world.log.of(RequestsCounted)
        assert (first.requests, first.counts, first.covered_s) == (3, {"table query": {"ok": 3}}, 300)
        assert second.counts == {"queue put message": {"refused": 1}, "table query": {"throttled": 1}}
        assert (second.requests, second.covered_s) == (2, 101)
    assert len(world.log.of(RequestsCounted)) == 2


async def test_what_came_after_serving_or_without_it_is_told_at_the_close():
    async with open_world() as world:
        ask(world, PUT)
        await world.clock.advance(7)
        assert world.log.of(RequestsCounted) == []
    (only,) = world.log.of(RequestsCounted)
    assert (only.counts, only.covered_s) == ({"queue put message": {"ok": 1}}, 7)


async def test_an_endpoint_that_fails_tells_too():
    worlds = []

    async def fail():
        async with open_world() as world:
            worlds.append(world)
            ask(world, PUT)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert len(worlds[0].log.of(RequestsCounted)) == 1


async def test_without_requests_nothing_is_told():
    async with open_world() as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert world.log.of(RequestsCounted) == []


async def test_hand_overs_are_counted_with_the_requests_that_they_cost():
    async with open_world(lookahead=0) as world:
        for _ in range(3):
            await world.endpoint.schedule("orders", "x", delay=10)
        await world.clock.advance(11)
        await world.endpoint.deliver_due()
        ask(world, QUERY)
        world.endpoint.parts.accountant.tell()
        ask(world, QUERY)
    assert [event.handed_over for event in world.log.of(RequestsCounted)] == [3, 0]


async def test_the_price_is_that_of_the_table_and_what_it_lacks_is_named(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(
        'about = "mine"\ncurrency = "EUR"\n[price]\nscan = 5\n[meter.table]\nquery = "scan"\n',
        encoding="utf-8",
    )
    async with open_world(prices=str(path)) as world:
        ask(world, QUERY, count=40)
        ask(world, QUERY, Outcome.THROTTLED, count=9)
        ask(world, ODD)
    (only,) = world.log.of(RequestsCounted)
    assert only.cost == pytest.approx(0.02)
    assert (only.currency, only.unpriced) == ("EUR", ("blob unknown",))


async def test_a_table_of_prices_that_is_wrong_opens_no_endpoint(tmp_path):
    with pytest.raises(ConfigurationError, match="POSTDATE_PRICES"):
        async with open_world(prices=str(tmp_path / "none.toml")):
            pass
