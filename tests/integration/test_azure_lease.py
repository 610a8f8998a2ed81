"""The lease while it is lost, broken, or not answered; and the lease on a blob."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from azure.storage.blob.aio import BlobLeaseClient, ContainerClient
from azure_cases import Rig, connection_of, rig_for

from postdate.backends.azure_storage import container_lease, open_backend
from postdate.backends.azure_storage.container_lease import LEADER_BLOB
from postdate.clock import StorageClock, SystemClock
from postdate.errors import OutcomeUnknown, ServiceBusy, StorageUnreachable
from postdate.settings import LeaseTarget
from postdate.testing.conformance import LeaseHarness, LeaseStoreConformance


class TestBlobLease(LeaseStoreConformance):
    @pytest.fixture
    async def harness(self, postdate_settings):
        on_blob = postdate_settings.model_copy(update={"lease_target": LeaseTarget.BLOB})
        backend = await open_backend(on_blob, StorageClock(SystemClock()))
        yield LeaseHarness(backend.new_lease, asyncio.sleep)
        await backend.close()

    # Real seconds pass in these; `tests/conformance` has them, on blobs too.
    test_an_expired_lease_can_be_taken_and_is_lost_to_the_first = None
    test_a_renewal_can_make_it_last_longer = None
    test_a_lease_that_runs_out_is_not_renewed_and_nobody_elses_before_its_end = None


@pytest.fixture
async def rig(postdate_settings) -> AsyncIterator[Rig]:
    async with rig_for(postdate_settings) as made:
        yield made


@pytest.fixture
async def container(postdate_settings) -> AsyncIterator[ContainerClient]:
    """The lease's container, as any other program would use it."""
    client = ContainerClient.from_connection_string(
        connection_of(postdate_settings), postdate_settings.table_name, api_version="2025-11-05"
    )
    yield client
    await client.close()


async def acquire(lease, holder: str = "me") -> int | None:
    return await lease.acquire(holder, 15, 30.0)


# Lost


async def test_a_lease_broken_by_an_operator_is_lost_at_the_next_renewal(rig, container):
    assert await acquire(rig.backend.lease) == 1
    await BlobLeaseClient(container).break_lease(lease_break_period=0)
    assert await rig.backend.lease.renew(15) is False
    assert await acquire(rig.backend.lease) == 2


async def test_a_lease_being_broken_is_lost_and_belongs_to_nobody_else_yet(rig, container):
    assert await acquire(rig.backend.lease) == 1
    await BlobLeaseClient(container).break_lease(lease_break_period=30)
    assert await rig.backend.lease.renew(15) is False
    assert await acquire(rig.backend.new_lease()) is None
    assert await acquire(rig.backend.lease) is None


async def test_a_lease_that_somebody_took_meanwhile_is_lost(rig):
    other = rig.backend.new_lease()
    assert await acquire(rig.backend.lease) == 1

    async def take_it(_):
        await other.break_lease()
        assert await acquire(other, "other") == 2

    rig.faults.on("lease.renew").before(take_it)
    assert await rig.backend.lease.renew(15) is False
    await rig.backend.lease.release()
    assert await other.renew(15) is True


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "LeaseLost"),
        (409, "LeaseIdMismatchWithLeaseOperation"),
        (409, "LeaseNotPresentWithLeaseOperation"),
        (409, "LeaseIsBrokenAndCannotBeRenewed"),
        (412, "LeaseNotPresentWithBlobOperation"),
        (404, "ContainerNotFound"),
        (404, "BlobNotFound"),
    ],
)
async def test_azure_and_azurite_name_a_lost_lease_differently_and_mean_the_same(rig, status, code):
    assert await acquire(rig.backend.lease) == 1
    rig.faults.on("lease.renew").respond(status, code)
    assert await rig.backend.lease.renew(15) is False
    assert await rig.backend.lease.renew(15) is False


async def test_a_container_that_was_deleted_is_made_anew_by_the_next_acquire(rig, container):
    assert await acquire(rig.backend.lease) == 1
    await container.delete_container(lease=rig.backend.lease._lease())
    assert await rig.backend.lease.renew(15) is False
    assert await acquire(rig.backend.lease) == 1


# Unsure


@pytest.mark.parametrize(("status", "code"), [(503, "ServerBusy"), (500, "OperationTimedOut")])
async def test_a_busy_service_leaves_the_lease_unsure_and_is_not_asked_twice(rig, status, code):
    # fact 3: the SDK would wait 15 s and more, longer than the lease
    assert await acquire(rig.backend.lease) == 1
    rig.faults.on("lease.renew").respond(status, code)
    with pytest.raises(ServiceBusy, match=code):
        await rig.backend.lease.renew(15)
    assert rig.faults.count("lease.renew") == 1
    assert await rig.backend.lease.renew(15) is True


async def test_a_renewal_whose_answer_is_lost_is_unsure_and_the_next_one_tells(rig):
    assert await acquire(rig.backend.lease) == 1
    rig.faults.on("lease.renew").time_out()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.lease.renew(15)
    assert await rig.backend.lease.renew(15) is True


async def test_a_call_that_hangs_is_given_up_long_before_the_lease_ends(rig, monkeypatch):
    # fact 5: `timeout=` of the SDK is the server's, and would not help here
    assert await acquire(rig.backend.lease) == 1
    monkeypatch.setattr(container_lease, "CALL_TIMEOUT_S", 0.05)
    rig.faults.on("lease.renew").hold()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.lease.renew(15)


async def test_an_acquire_whose_answer_was_lost_is_taken_up_by_the_next_one(rig):
    rig.faults.on("lease.acquire").time_out()
    with pytest.raises(OutcomeUnknown):
        await acquire(rig.backend.lease)
    assert await acquire(rig.backend.new_lease()) is None  # it was taken
    assert await acquire(rig.backend.lease) == 1


async def test_a_release_after_an_acquire_of_unknown_outcome_frees_it(rig):
    rig.faults.on("lease.acquire").time_out()
    with pytest.raises(OutcomeUnknown):
        await acquire(rig.backend.lease)
    await rig.backend.lease.release()
    assert await acquire(rig.backend.new_lease()) == 1


async def test_a_service_that_is_down_is_told_with_the_way_out(rig):
    rig.faults.on("*", times=9).refuse_connection()
    with pytest.raises(StorageUnreachable, match="postdate azurite"):
        await acquire(rig.backend.lease)
    with pytest.raises(StorageUnreachable):
        await rig.backend.lease.release()


async def test_who_never_acquired_has_nothing_to_release(rig):
    await rig.backend.lease.release()
    assert rig.faults.calls == []


async def test_a_cancelled_acquire_lets_go_of_what_it_took(rig):
    held = rig.faults.on("blob.put").hold()
    task = asyncio.create_task(acquire(rig.backend.lease))
    await held.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await acquire(rig.backend.new_lease()) == 1


async def test_a_failure_while_letting_go_does_not_hide_the_first_one(rig):
    rig.faults.on("blob.put").respond(503, "ServerBusy")
    rig.faults.on("lease.release").refuse_connection()
    with pytest.raises(ServiceBusy):
        await acquire(rig.backend.lease)
    assert await rig.backend.lease.renew(15) is False
    assert await acquire(rig.backend.lease) == 1  # its own lease, which it could not give back


async def test_breaking_and_looking_tell_what_stands_in_the_way(rig):
    assert await rig.backend.new_lease().break_lease() is False
    assert await acquire(rig.backend.lease) == 1
    rig.faults.on("lease.break").respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await rig.backend.lease.break_lease()
    rig.faults.on("container.look").respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await rig.backend.lease.holder()
    rig.faults.on("blob.get").break_connection()
    with pytest.raises(StorageUnreachable):
        await rig.backend.lease.holder()


async def test_terms_that_others_keep_writing_over_are_given_up(rig, container):
    numbers = iter(range(10, 99))

    async def interfere(_):
        await container.upload_blob(LEADER_BLOB, f'{{"term":{next(numbers)}}}'.encode(), overwrite=True)

    rig.faults.on("blob.put", times=99).before(interfere)
    with pytest.raises(ServiceBusy, match="changed by others"):
        await acquire(rig.backend.lease)
    assert await rig.backend.lease.renew(15) is False


# Publishing


async def test_who_can_not_publish_does_not_keep_the_lease(rig):
    rig.faults.on("blob.put").respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await acquire(rig.backend.lease)
    assert await rig.backend.lease.renew(15) is False
    assert await acquire(rig.backend.new_lease()) == 1


async def test_terms_grow_although_somebody_else_writes_meanwhile(rig, container):
    async def interfere(_):
        await container.upload_blob(LEADER_BLOB, b'{"holder":"x","term":7}', overwrite=True)

    rig.faults.on("blob.put").before(interfere)
    assert await acquire(rig.backend.lease) == 8


async def test_who_lost_the_lease_while_publishing_does_not_write_over_the_new_leader(rig, container):
    other = rig.backend.new_lease()

    async def overtake(_):
        await other.break_lease()
        assert await acquire(other, "other") == 1

    rig.faults.on("blob.put").before(overtake)
    assert await acquire(rig.backend.lease) is None
    record = await other.holder()
    assert record is not None
    assert record.holder == "other"


async def test_a_record_that_was_spoilt_does_not_stop_elections_and_terms_still_grow(rig, container):
    assert await acquire(rig.backend.lease) == 1
    await rig.backend.lease.release()
    await container.upload_blob(LEADER_BLOB, b"\xff not json", overwrite=True)
    term = await acquire(rig.backend.lease)
    assert term is not None
    assert term > datetime(2020, 1, 1).timestamp()


async def test_a_container_being_deleted_is_busy_and_not_somebody_else(rig):
    rig.faults.on("lease.acquire").respond(409, "ContainerBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s"):
        await acquire(rig.backend.lease)
    rig.faults.on("container.create").respond(409, "ContainerBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s"):
        await rig.backend.lease.create()


async def test_the_container_is_private(rig, container):
    policy = await container.get_container_access_policy()
    assert policy["public_access"] is None


async def test_a_plain_container_lease_as_dotnet_takes_it_keeps_us_out(rig, container):
    theirs = await container.acquire_lease(lease_duration=15)
    assert await acquire(rig.backend.lease) is None
    assert await rig.backend.lease.holder() is None
    await theirs.release()
    assert await acquire(rig.backend.lease) == 1
