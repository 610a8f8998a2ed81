"""DeliveryLogStore: files that only grow, and by nothing twice."""

from dataclasses import dataclass

import pytest

from postdate.errors import StorageError
from postdate.model.delivery_log import blob_name
from postdate.ports import DeliveryLogStore, LogDisplaced, LogFile

_NAME = blob_name("20260301/11", "host/7/abc", 1)


@dataclass(frozen=True)
class DeliveryLogHarness:
    """A log under test, empty; the place it is in is created."""

    log: DeliveryLogStore


class DeliveryLogConformance:
    """What a DeliveryLogStore must keep."""

    @pytest.fixture
    async def harness(self) -> DeliveryLogHarness:
        """Provide the log; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_blocks_stand_behind_each_other(self, harness: DeliveryLogHarness) -> None:
        assert await harness.log.append(_NAME, b"first\n", at=0) == 6
        assert await harness.log.append(_NAME, b"second\n", at=6) == 13
        assert await harness.log.read(_NAME, 0, 13) == b"first\nsecond\n"
        assert await harness.log.read(_NAME, 6, 12) == b"second"
        assert await harness.log.read(_NAME, 4, 4) == b""

    @pytest.mark.parametrize("before", [b"", b"before\n"])
    async def test_a_block_that_is_sent_again_is_there_once(
        self, harness: DeliveryLogHarness, before: bytes
    ) -> None:
        at = await harness.log.append(_NAME, before, at=0) if before else 0
        end = await harness.log.append(_NAME, b"block\n", at=at)
        assert await harness.log.append(_NAME, b"block\n", at=at) == end
        assert [file async for file in harness.log.files()] == [LogFile(_NAME, end)]

    async def test_a_file_that_others_wrote_into_is_not_continued(self, harness: DeliveryLogHarness) -> None:
        await harness.log.append(_NAME, b"of others\n", at=0)
        with pytest.raises(LogDisplaced):
            await harness.log.append(_NAME, b"ours\n", at=0)
        with pytest.raises(LogDisplaced):
            await harness.log.append(_NAME, b"ours\n", at=100)
        assert await harness.log.read(_NAME, 0, 10) == b"of others\n"

    async def test_files_are_listed_by_hour(self, harness: DeliveryLogHarness) -> None:
        hours = ["20260228/23", "20260301/00", "20260301/11", "20260302/05"]
        names = [blob_name(hour, f"p{part}", part) for hour in hours for part in (1, 2)]
        for name in reversed(names):
            await harness.log.append(name, b"x\n", at=0)

        async def listed(first: str | None, last: str | None) -> list[str]:
            return [file.name async for file in harness.log.files(first, last)]

        assert await listed(None, None) == names
        assert await listed("20260301/00", "20260301/11") == names[2:6]
        assert await listed("20260301/01", None) == names[4:]
        assert await listed(None, "20260301/10") == names[:4]
        assert await listed("20200101/00", "20260228/23") == names[:2]

    async def test_a_file_that_is_gone_is_told(self, harness: DeliveryLogHarness) -> None:
        with pytest.raises(StorageError, match="is gone"):
            await harness.log.read(_NAME, 0, 1)
