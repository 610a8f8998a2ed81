"""PayloadStore: large bodies are kept until their message is done with, or too old."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from postdate.errors import PoisonMessage
from postdate.ports import PayloadStore

_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
_LATER = _NOW + timedelta(days=30)


@dataclass(frozen=True)
class PayloadHarness:
    """A payload store under test, empty; the place it is in is created."""

    payloads: PayloadStore


class PayloadStoreConformance:
    """What a PayloadStore must keep and drop."""

    @pytest.fixture
    async def harness(self) -> PayloadHarness:
        """Provide the store; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_a_body_comes_back_whole(self, harness: PayloadHarness) -> None:
        body = bytes(range(256)) * 40_000
        await harness.payloads.put("a", body, keep_until=_LATER)
        assert await harness.payloads.get("a") == body

    async def test_an_empty_body_is_not_one_that_is_done_with(self, harness: PayloadHarness) -> None:
        await harness.payloads.put("a", b"", keep_until=_LATER)
        assert await harness.payloads.get("a") == b""

    async def test_the_same_name_twice_is_one(self, harness: PayloadHarness) -> None:
        await harness.payloads.put("a", b"first", keep_until=_LATER)
        await harness.payloads.put("a", b"first", keep_until=_LATER)
        assert await harness.payloads.get("a") == b"first"

    async def test_a_body_that_is_done_with_answers_none_and_stays_so(self, harness: PayloadHarness) -> None:
        await harness.payloads.put("a", b"x", keep_until=_LATER)
        await harness.payloads.delete("a")
        await harness.payloads.delete("a")
        assert await harness.payloads.get("a") is None
        await harness.payloads.put("a", b"x", keep_until=_LATER)
        assert await harness.payloads.get("a") is None

    async def test_what_was_never_there_is_poison(self, harness: PayloadHarness) -> None:
        with pytest.raises(PoisonMessage, match="nowhere"):
            await harness.payloads.get("nowhere")
        await harness.payloads.delete("nowhere")

    async def test_sweep_removes_what_is_past_its_age_and_nothing_else(self, harness: PayloadHarness) -> None:
        await harness.payloads.put("old", b"x", keep_until=_NOW - timedelta(seconds=1))
        await harness.payloads.put("new", b"y", keep_until=_LATER)
        assert await harness.payloads.sweep(_NOW) == 1
        assert await harness.payloads.get("new") == b"y"
        with pytest.raises(PoisonMessage):
            await harness.payloads.get("old")

    async def test_keep_saves_a_body_from_the_sweep(self, harness: PayloadHarness) -> None:
        await harness.payloads.put("a", b"x", keep_until=_NOW - timedelta(seconds=1))
        await harness.payloads.keep("a", keep_until=_LATER)
        await harness.payloads.keep("nowhere", keep_until=_LATER)
        assert await harness.payloads.sweep(_NOW) == 0
        assert await harness.payloads.get("a") == b"x"
