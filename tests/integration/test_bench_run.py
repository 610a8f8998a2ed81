"""The benchmark on a real Azurite, with tiny numbers: contenders do the same work, and the counts add up."""

import asyncio
from dataclasses import replace

import pytest
from azure.data.tables.aio import TableServiceClient
from azure_cases import connection_of

from postdate.bench.account import Account
from postdate.bench.classic_storage import LeanStorage, SdkStorage
from postdate.bench.drain import drain_classic, drain_postdate, drain_sdk_loop
from postdate.bench.ground import PREFIX, AccountGrounds, LocalGrounds, quick
from postdate.bench.kill import kill_classic, kill_postdate
from postdate.bench.limit import measure_limit, raw_put_seconds
from postdate.bench.memory import flat
from postdate.bench.punctual import all_at_once, cross_check, measure_classic, measure_postdate, trickle
from postdate.bench.ratios import ratios
from postdate.bench.results import CLASSIC, LIMIT, POSTDATE, SDK_LOOP, Results
from postdate.bench.scale import QUICK
from postdate.bench.steps import no_lookahead
from postdate.errors import StorageError

#: They measure real time.
pytestmark = pytest.mark.alone

COUNT = 120
SCALE = replace(
    QUICK, trickle_rate=20, trickle_seconds=1, burst=30, ahead_s=3.0, rows_ahead_s=5.0, clock_known_s=0.2
)


@pytest.fixture
def grounds(postdate_settings):
    """Names of their own on the shared Azurite, removed at the end, as on a user's account."""
    return AccountGrounds(postdate_settings)


async def names_left(settings) -> list[str]:
    async with TableServiceClient.from_connection_string(connection_of(settings)) as service:
        return [table.name async for table in service.list_tables() if table.name.startswith(PREFIX)]


async def test_the_limit_sends_what_it_prepared_and_deletes_what_it_inserted(grounds):
    async with grounds.fresh() as ground:
        limit = await measure_limit(ground, 200)
        assert [run.puts for run in limit.runs] == [200] * 8
        assert limit.puts.per_s == max(run.per_s for run in limit.runs[:4])
        assert limit.puts_and_deletes.per_s == max(run.per_s for run in limit.runs[4:])
        assert await raw_put_seconds(ground, 50, 8) > 0
        async with Account(ground.settings) as account:
            assert [row async for row in account.table().list_entities()] == []


@pytest.mark.parametrize("variant", [LeanStorage, SdkStorage])
async def test_classic_makes_one_put_and_one_delete_for_each_row(grounds, variant):
    async with grounds.fresh() as ground:
        drained = await drain_classic(ground, variant, COUNT)
        async with Account(ground.settings) as account:
            assert [row async for row in account.table().list_entities()] == []
            properties = await account.queue(ground.queue).get_queue_properties()
    assert properties.approximate_message_count == COUNT
    assert drained.drain["messages"] == COUNT
    assert drained.requests["queue put message"] == {"ok": COUNT}
    assert drained.requests["table delete"] == {"ok": COUNT}
    assert drained.requests["table query"]["ok"] >= 3
    assert drained.duplicated == 0


async def test_the_plain_loop_counts_its_puts(grounds):
    async with grounds.fresh() as ground:
        for shared in (True, False):
            drained = await drain_sdk_loop(ground, 30, shared_session=shared)
            assert (drained.drain["messages"], drained.drain["requests_per_message"]) == (30, 2.0)


async def test_three_contenders_give_the_ratios_of_a_drain(grounds):
    results = Results()
    async with grounds.fresh() as ground:
        results.limit = await measure_limit(ground, 200)
        results.rounds[LIMIT] = [results.limit.puts_and_deletes.per_s]
    async with grounds.fresh() as ground:
        results.of(CLASSIC).drain = (await drain_classic(ground, LeanStorage, COUNT)).drain
    async with grounds.fresh() as ground:
        results.of(SDK_LOOP).drain = (await drain_sdk_loop(ground, 60, shared_session=True)).drain
    async with grounds.fresh() as ground:
        drained = await drain_postdate(ground, ground.settings, COUNT)
        results.of(POSTDATE).drain = drained.drain
        results.rounds[POSTDATE] = [drained.drain["per_s"]]
    assert drained.requests["queue put message"] == {"ok": COUNT}
    assert sum(drained.requests["table batch"].values()) < COUNT / 10
    assert sum(sum(ends.values()) for ends in drained.requests.values()) == pytest.approx(
        drained.drain["requests_per_message"] * COUNT
    )
    found = ratios(results)
    assert set(found) == {"drain_vs_classic", "drain_vs_limit", "requests_per_message", "cpu_vs_sdk_loop"}
    assert all(value > 0 for value in found.values())


async def test_the_engine_drains_made_rows_and_its_memory_is_told():
    found = await flat(200, 2_500)
    assert (found.few["rows"], found.many["rows"]) == (200, 2_500)
    assert found.few["peak_mb"] > 20
    assert 0.9 < found.many["peak_mb"] / found.few["peak_mb"] < 1.2


@pytest.mark.slow
async def test_a_real_consumer_sees_nothing_before_the_bounds_that_were_computed():
    async with LocalGrounds().fresh(consumer=True) as ground:
        seen = await cross_check(ground, SCALE, quick(ground.settings))
    assert (seen.sample, seen.early, seen.before_bounds) == (1, 0, 0)
    assert seen.behind_max_s < 5


@pytest.mark.slow
async def test_a_killed_process_loses_nothing_and_the_other_takes_over(grounds):
    async def classic():
        async with grounds.fresh() as ground:
            return await kill_classic(ground, SCALE)

    async def postdate():
        async with grounds.fresh() as ground:
            return await kill_postdate(ground, quick(ground.settings), SCALE, SCALE.rows_ahead_s)

    for killed in await asyncio.gather(classic(), postdate()):
        assert (killed["scheduled"], killed["lost"], killed["outstanding"]) == (SCALE.kill, 0, 0)
        assert killed["longest_gap_s"] > 5  # the lease of the dead one


@pytest.mark.slow
async def test_lateness_is_seen_for_each_message_and_nothing_is_early(grounds):
    async with grounds.fresh() as ground:
        settings = quick(ground.settings)
        late = await measure_postdate(ground, settings, trickle(SCALE, SCALE.rows_ahead_s), SCALE)
    async with grounds.fresh() as ground:
        settings = no_lookahead(quick(ground.settings))
        burst = await measure_postdate(ground, settings, all_at_once(SCALE, SCALE.ahead_s), SCALE)
    async with grounds.fresh() as ground:
        classic = await measure_classic(ground, LeanStorage, trickle(SCALE, SCALE.ahead_s), SCALE)
    for found, count in ((late, 20), (burst, 30), (classic, 20)):
        lateness = found.lateness
        assert (lateness.count, lateness.lost, lateness.early) == (count, 0, 0)
        assert found.contradictions == 0
    # Whole seconds: half a second on average, at the least, before any polling.
    assert classic.lateness.p50_s > 0.3


async def test_nothing_is_left_in_the_account_also_when_it_is_cancelled(grounds, postdate_settings):
    ready = asyncio.Event()

    async def measure() -> None:
        async with grounds.fresh():
            ready.set()
            await asyncio.Event().wait()

    before = await names_left(postdate_settings)
    measuring = asyncio.create_task(measure())
    await ready.wait()
    assert len(await names_left(postdate_settings)) == len(before) + 1
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert await names_left(postdate_settings) == before


async def test_a_prepared_request_that_is_refused_ends_the_measurement(grounds):
    async with grounds.fresh() as ground:
        gone = replace(ground, queue=f"{ground.queue}-gone")
        with pytest.raises(StorageError, match="answered 404"):
            await measure_limit(gone, 200)
