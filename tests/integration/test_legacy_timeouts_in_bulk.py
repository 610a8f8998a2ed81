"""Many legacy timeouts at once on a real storage service: the same as one by one, with fewer requests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from postdate import Endpoint
from postdate.backends.azure_storage.timeouts_in_bulk import WholeTimeout
from postdate.model import headers as h
from postdate.model.legacy_rows import time_key
from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout
from postdate.model.requests import by_operation

DUE = datetime(2040, 3, 1, 7, 8, 9, 987_654, tzinfo=UTC)
COUNT = 40


def made(number, **more):
    values = {
        "id": f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        "destination": "target",
        "due_at": DUE + number * timedelta(seconds=1),
        "headers": {h.MESSAGE_ID: f"m{number}", "Größe": "XL"},
        "body": b"\x00" * (number % 3),
        "owner": "Contoso.Orders",
        "saga_id": f"7c1f3b52-9a40-4c43-8b7e-{number:012d}" if number % 2 else None,
        **more,
    }
    return LegacyTimeout(**values)


@pytest.fixture
async def endpoint(postdate_settings):
    name = f"T{postdate_settings.endpoint[-8:]}"
    places = {"timeout_table": name, "timeout_state_container": f"{name}-states".lower()}
    async with Endpoint(postdate_settings.model_copy(update=places)) as opened:
        await opened.parts.backend.timeouts.create()
        yield opened


@pytest.fixture
def timeouts(endpoint):
    return endpoint.parts.backend.timeouts


async def everything(timeouts):
    """Rows, and names of bodies."""
    rows = [row async for page in timeouts._pages("") for row in page]
    return rows, sorted([blob.name async for blob in timeouts._states.list_blobs()])


async def read(timeouts, ones):
    found = await timeouts.read_many([one.id for one in ones])
    return {one.timeout.id: one.main for one in found}, [one.timeout for one in found]


async def test_what_is_added_together_is_what_is_added_one_by_one(timeouts):
    ones = [made(number) for number in range(COUNT)]
    for one in ones:
        await timeouts.add(one)
    alone = await everything(timeouts)
    mains, found = await read(timeouts, ones)
    assert found == ones
    assert await timeouts.remove_many(ones, mains) == []
    assert await everything(timeouts) == ([], [])
    await timeouts.add_many(ones)
    assert await everything(timeouts) == alone


async def test_adding_again_completes_what_an_interruption_left(timeouts):
    ones = [made(number) for number in range(5)]
    await timeouts.add_many(ones)
    whole = await everything(timeouts)
    time = time_key(ones[2].id, ones[2].due_at, timeouts._scope)
    await timeouts._drop_row(time)
    assert await everything(timeouts) != whole
    await timeouts.add_many(ones)
    assert await everything(timeouts) == whole


async def test_those_that_were_gone_are_told_and_what_was_left_of_them_goes_too(timeouts):
    ones = [made(number) for number in range(6)]
    await timeouts.add_many(ones)
    mains, _ = await read(timeouts, ones)
    assert await timeouts.remove(ones[1].id)
    await timeouts.remove_main(ones[3].id)
    assert sorted(await timeouts.remove_many(ones, mains)) == [ones[1].id, ones[3].id]
    assert await everything(timeouts) == ([], [])


async def test_one_that_was_written_anew_meanwhile_is_removed_all_the_same(timeouts):
    one = made(1)
    await timeouts.add_many([one])
    mains, _ = await read(timeouts, [one])
    assert await timeouts.remove(one.id)
    await timeouts.add(replace(one, destination="elsewhere"))
    assert await timeouts.remove_many([one], mains) == []
    assert await everything(timeouts) == ([], [])


async def test_bodies_can_stay(timeouts):
    ones = [made(number) for number in range(3)]
    await timeouts.add_many(ones)
    mains, _ = await read(timeouts, ones)
    assert await timeouts.remove_many(ones, mains, keep_bodies=True) == []
    assert await everything(timeouts) == ([], [one.id for one in ones])


async def test_those_without_a_main_row_are_left_out_and_those_without_a_body_told(timeouts):
    ones = [made(number) for number in range(3)]
    await timeouts.add_many(ones)
    await timeouts.remove_main(ones[0].id)
    await timeouts._drop_state(ones[1].id)
    broken, whole = await timeouts.read_many([one.id for one in ones])
    assert isinstance(broken, UnreadableTimeout)
    assert (broken.id, broken.due_at) == (ones[1].id, ones[1].due_at)
    assert "is missing" in broken.reason
    assert isinstance(whole, WholeTimeout)
    assert whole.timeout == ones[2]


async def test_a_timeout_costs_a_read_and_a_removal_of_its_row_and_of_its_body(endpoint, timeouts):
    """Time rows of one hour go together."""
    ones = [made(number, saga_id=None, body=b"x") for number in range(COUNT)]
    await timeouts.add_many(ones)
    counter = endpoint.parts.backend.requests
    before = by_operation(counter.counts())
    mains, _ = await read(timeouts, ones)
    await timeouts.remove_many(ones, mains)
    after = by_operation(counter.counts())
    asked = {
        name: sum(counts.values()) - sum(before.get(name, {}).values()) for name, counts in after.items()
    }
    assert {name: count for name, count in asked.items() if count} == {
        "table get": COUNT,
        "blob get blob": COUNT,
        "table delete": COUNT,
        "table batch": 1,
        "blob delete blob": COUNT,
    }
