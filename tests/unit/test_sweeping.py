"""Cleaning up large bodies holds up nobody; and many rows that are tried again cost few passes."""

import asyncio

from engine_cases import open_world

from postdate.events import HandedOver, PassFinished


async def test_a_clean_up_that_takes_long_delays_no_delivery_and_no_stop():
    async with open_world(lookahead=0) as world:
        world.backend.payloads.sweep = lambda now: asyncio.Event().wait()  # a million blobs
        await world.endpoint.schedule("orders", "x", delay=1)
        stop = asyncio.Event()
        running = asyncio.create_task(world.endpoint.run(stop))
        await world.clock.advance(3)
        assert len(world.log.of(HandedOver)) == 1
        stop.set()
        await world.clock.advance(0)
        await running


async def test_many_rows_in_back_off_share_their_passes():
    async with open_world(lookahead=0, number_of_retries=50) as world:
        await world.backend.sender.create("gone")
        for n in range(200):
            await world.endpoint.schedule("gone", n, delay=1)
        await world.backend.sender.delete("gone")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(120)
        assert len(world.log.of(PassFinished)) <= 125
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
