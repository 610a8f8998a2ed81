"""Large bodies while several processes store, keep and finish them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from azure_cases import Rig, rig_for

from postdate.errors import NotProvisioned, PoisonMessage, ServiceBusy
from postdate.model.limits import LATEST_DUE

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
async def rig(postdate_settings) -> AsyncIterator[Rig]:
    async with rig_for(postdate_settings) as made:
        yield made


async def test_a_put_whose_answer_is_lost_is_harmless(rig):
    rig.faults.on("blob.put").lose_answer()
    await rig.backend.payloads.put("a", b"body", keep_until=NOW)
    assert await rig.backend.payloads.get("a") == b"body"


async def test_a_put_that_meets_the_mark_does_not_bring_the_body_back(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=NOW)
    rig.faults.on("blob.put").before(lambda _: payloads.delete("a"))
    await payloads.put("a", b"body", keep_until=NOW + DAY)
    assert await payloads.get("a") is None


async def test_a_keep_that_meets_a_delete_does_not_unmark(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=NOW)
    rig.faults.on("blob.set_metadata").before(lambda _: payloads.delete("a"))
    await payloads.keep("a", keep_until=NOW + DAY)
    assert await payloads.get("a") is None


async def test_a_delete_that_meets_a_keep_still_marks(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=NOW)
    rig.faults.on("blob.put").before(lambda _: payloads.keep("a", keep_until=NOW + DAY))
    await payloads.delete("a")
    assert await payloads.get("a") is None


async def test_a_second_put_only_ever_keeps_longer(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=NOW + DAY)
    await payloads.put("a", b"body", keep_until=NOW - DAY)
    assert await payloads.sweep(NOW) == 0
    await payloads.put("a", b"body", keep_until=NOW + 3 * DAY)
    assert await payloads.sweep(NOW + 2 * DAY) == 0
    assert await payloads.sweep(NOW + 4 * DAY) == 1


async def test_a_sweep_spares_what_was_kept_longer_meanwhile(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=NOW - DAY)
    rig.faults.on("blob.delete").before(lambda _: payloads.keep("a", keep_until=NOW + DAY))
    assert await payloads.sweep(NOW) == 0
    assert await payloads.get("a") == b"body"


async def test_a_mark_lives_no_longer_than_any_duplicate(rig):
    payloads = rig.backend.payloads
    await payloads.put("a", b"body", keep_until=LATEST_DUE)
    await payloads.delete("a")
    await payloads.keep("a", keep_until=LATEST_DUE)
    now = rig.clock.now()
    assert await payloads.sweep(now + 7 * DAY) == 0
    assert await payloads.sweep(now + 9 * DAY) == 1
    with pytest.raises(PoisonMessage, match="payloads/a"):
        await payloads.get("a")


async def test_the_leaders_record_beside_them_is_never_swept(rig):
    assert await rig.backend.lease.acquire("me", 15, 0.0) == 1
    assert await rig.backend.payloads.sweep(LATEST_DUE) == 0
    assert await rig.backend.lease.holder() is not None


async def test_a_missing_container_is_told(postdate_settings):
    async with rig_for(postdate_settings, provisioned=False) as rig:
        with pytest.raises(NotProvisioned, match="container"):
            await rig.backend.payloads.put("a", b"x", keep_until=NOW)
        with pytest.raises(NotProvisioned, match="container"):
            await rig.backend.payloads.get("a")


async def test_a_busy_service_is_tried_again_soon_and_then_told(rig):
    # fact 3: the SDK's own waits are 15 s and more; ours are about a second, twice
    started = rig.clock.monotonic()
    rig.faults.on("blob.get").respond(503, "ServerBusy")
    await rig.backend.payloads.put("a", b"x", keep_until=NOW)
    assert await rig.backend.payloads.get("a") == b"x"
    rig.faults.on("blob.put", times=9).respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await rig.backend.payloads.put("b", b"x", keep_until=NOW)
    assert rig.faults.count("blob.put") == 1 + 3
    assert rig.clock.monotonic() - started < 12.0
