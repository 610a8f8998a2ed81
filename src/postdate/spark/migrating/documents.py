"""What a run keeps in the endpoint's container, under `bulk/migrate/<run>/`.

run.json            how it began: source, cut-off as an instant, parts; never changed
part/<n>            how far a part came, and what of it; none: pending
term.json           which call works on it: a number that only grows
aborting.json       somebody gives it up: no task takes anything more
manifest.json       the end: completed, or aborted, and the sums
staged/<n>/<hash>   timeouts of Azure tables that were taken for part n, whole
taken/<n>/<hash>    those of them that were gone when they were taken; there when all have been
"""

from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum

import msgspec

from postdate.backends.azure_storage.bulk_blobs import BulkBlobs, check_run
from postdate.errors import PostdateError, UsageError
from postdate.spark.migrating.sources import Chosen, Range, Source

VERSION = 1
EXAMPLES = 5
MODULUS = 1 << 128


class Phase(StrEnum):
    """How far something came."""

    PENDING = "pending"
    STAGED = "staged"
    COMPLETED = "completed"
    GIVEN_BACK = "given_back"
    ABORTING = "aborting"
    ABORTED = "aborted"


class RunDocument(msgspec.Struct, frozen=True):
    """How a run began."""

    source: Source
    chosen: Chosen
    began_at: datetime
    parts: tuple[Range, ...]
    version: int = VERSION


class PartDocument(msgspec.Struct):
    """What became of a part. Checksums are sums of fingerprints, which depend on no order."""

    phase: Phase = Phase.PENDING
    #: Timeouts that were taken, and the sum over them.
    staged: int = 0
    staged_sum: str = "0" * 32
    #: Rows that these make, less those that a leader took since; and rows that were found there.
    expected: int = 0
    expected_sum: str = "0" * 32
    found: int = 0
    found_sum: str = "0" * 32
    delivered: int = 0
    #: Timeouts that are rows now.
    moved: int = 0
    #: By id, with their fingerprints: they went back, since another message has their place.
    returned: dict[str, str] = msgspec.field(default_factory=dict)
    given_back: int = 0
    #: Left to a leader that may hold them, when the run was given up.
    kept: int = 0
    refused: int = 0
    too_soon: int = 0
    #: May be delivered twice.
    doubtful: int = 0
    #: Refused and doubtful ones, a few: id and reason.
    examples: list[tuple[str, str]] = msgspec.field(default_factory=list)

    #: In a sum: parts that are completed.
    parts_completed: int = 0

    def tell(self, timeout_id: str, reason: str) -> None:
        """Keep an example."""
        if len(self.examples) < EXAMPLES:
            self.examples.append((timeout_id, reason))

    def add(self, other: "PartDocument") -> None:
        """Add up counts and sums."""
        for name in (
            "staged", "expected", "found", "delivered", "moved", "given_back", "kept", "refused", "too_soon",
            "doubtful",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("staged_sum", "expected_sum", "found_sum"):
            setattr(self, name, summed(getattr(self, name), getattr(other, name)))
        self.returned |= other.returned
        self.parts_completed += other.phase is Phase.COMPLETED
        self.examples = (self.examples + other.examples)[:EXAMPLES]


def summed(*sums: str) -> str:
    """The sum of sums."""
    return f"{sum(int(one, 16) for one in sums) % MODULUS:032x}"


class Ending(msgspec.Struct, frozen=True):
    """How a run ended."""

    phase: Phase
    total: PartDocument


class Documents:
    """The documents of one run."""

    def __init__(self, bulk: BulkBlobs, run: str) -> None:
        self.bulk = bulk
        self.run = check_run(run)
        self._folder = f"migrate/{run}"
        #: Versions of the parts' documents, as this process knows them.
        self._versions: dict[int, str | None] = {}

    def name(self, rest: str) -> str:
        """A document's full name."""
        return f"{self._folder}/{rest}"

    async def begun(self) -> RunDocument | None:
        """How it began; None: it did not.

        Raises:
            UsageError: another version of Postdate began it.
        """
        text = await self.bulk.get(self.name("run.json"))
        if text is None:
            return None
        found = msgspec.json.decode(text, type=RunDocument)
        if found.version != VERSION:
            raise UsageError(f"run {self.run!r} is of version {found.version}, which is not known here")
        return found

    async def begin(self, document: RunDocument) -> RunDocument:
        """Write how it begins; what somebody else began meanwhile stays."""
        if await self.bulk.begin(self.name("run.json"), document):
            return document
        found = await self.begun()
        assert found is not None
        return found

    async def ending(self) -> Ending | None:
        """How it ended; None: it did not."""
        text = await self.bulk.get(self.name("manifest.json"))
        return None if text is None else msgspec.json.decode(text, type=Ending)

    async def end(self, ending: Ending) -> None:
        """Write how it ended."""
        await self.bulk.put(self.name("manifest.json"), ending)

    async def give_up(self) -> None:
        """From now on no task takes anything more."""
        await self.bulk.put(self.name("aborting.json"), True)

    async def is_given_up(self) -> bool:
        """Whether somebody gives it up."""
        return await self.bulk.get(self.name("aborting.json")) is not None

    async def term(self) -> int:
        """The term of the call that works on it; 0: none ever did."""
        text = await self.bulk.get(self.name("term.json"))
        return 0 if text is None else msgspec.json.decode(text, type=int)

    async def take_term(self) -> int:
        """The next term, which ends those before."""
        while True:
            found = await self.bulk.read(self.name("term.json"))
            number = 1 if found is None else msgspec.json.decode(found[0], type=int) + 1
            if await self.bulk.replace(self.name("term.json"), number, found and found[1]) is not None:
                return number

    async def part(self, number: int) -> PartDocument:
        """How far a part came."""
        found = await self.bulk.read(self.name(f"part/{number}"))
        self._versions[number] = None if found is None else found[1]
        return PartDocument() if found is None else msgspec.json.decode(found[0], type=PartDocument)

    async def put_part(self, number: int, document: PartDocument) -> None:
        """Write it over what this process has read or written last.

        Raises:
            PostdateError: somebody else wrote it meanwhile.
        """
        name = self.name(f"part/{number}")
        version = await self.bulk.replace(name, document, self._versions.get(number))
        if version is None:
            found = await self.bulk.read(name)
            # A lost answer, or another attempt that came to the same end.
            if found is None or found[0] != msgspec.json.encode(document):
                raise PostdateError(
                    f"part {number} of run {self.run!r}: somebody else has worked on it meanwhile; run the "
                    "same command again, and look for other calls of it"
                )
            version = found[1]
        self._versions[number] = version

    async def put_moved(self, number: int, ids: list[str]) -> None:
        """Of which timeouts staged for a part nothing more is to be done."""
        await self.bulk.put(self.name(f"moved/{number}"), ids)

    async def moved(self, number: int) -> list[str]:
        """The same, read."""
        text = await self.bulk.get(self.name(f"moved/{number}"))
        return [] if text is None else msgspec.json.decode(text, type=list[str])

    async def drop_moved(self, number: int) -> None:
        """Nothing is staged any more."""
        await self.bulk.delete(self.name(f"moved/{number}"))

    async def parts(self) -> AsyncIterator[tuple[int, PartDocument]]:
        """Those that are not pending."""
        async for name in self.bulk.names(self.name("part/")):
            number = int(name.rpartition("/")[2])
            yield number, await self.part(number)
