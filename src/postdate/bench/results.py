"""What a run found, contender by contender, and what went wrong in it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from postdate.bench.bounds import Punctuality
from postdate.bench.figures import Figures, Lateness
from postdate.bench.limit import Limit
from postdate.errors import PostdateError

#: Told what is going on, a line at a time.
Say = Callable[[str], None]

LIMIT = "limit"
POSTDATE = "postdate"
POSTDATE_0 = "postdate_lookahead_0"
CLASSIC = "classic"
CLASSIC_SDK = "classic_sdk"
SDK_LOOP = "sdk_loop"
SDK_LOOP_DEFAULT = "sdk_loop_default"

_VERSIONS = {
    POSTDATE: "postdate",
    POSTDATE_0: "postdate",
    CLASSIC: "postdate",
    CLASSIC_SDK: "azure-storage-queue",
    SDK_LOOP: "azure-storage-queue",
    SDK_LOOP_DEFAULT: "azure-storage-queue",
}
_NOTES = {
    POSTDATE: ["default settings"],
    POSTDATE_0: ["lookahead 0: each message is handed over when it is due"],
    CLASSIC: ["the published algorithm, on the lean pipeline of the product"],
    CLASSIC_SDK: ["the published algorithm, on the plain SDK's clients and a shared session"],
    SDK_LOOP: ["one send and one delete for each message, 50 at once, on a shared session without proxies"],
    SDK_LOOP_DEFAULT: ["one send and one delete for each message, 50 at once, on the SDK's own transports"],
}


class BenchmarkFailed(PostdateError):
    """A step could not be measured, or found what must not be."""


@dataclass
class Results:
    """All figures of a run."""

    figures: dict[str, Figures] = field(default_factory=dict)
    #: What is behind the figures: by contender, then by workload.
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    limit: Limit | None = None
    #: Messages a second in each round, by contender and for the limit. The rounds of all are interleaved, so
    #: that what a round compares was measured within a minute or two, on a machine in the same mood.
    rounds: dict[str, list[float]] = field(default_factory=dict)
    #: Steps that belong to no contender and failed.
    failures: list[str] = field(default_factory=list)

    def of(self, contender: str) -> Figures:
        """The figures of a contender, empty at first."""
        if contender not in self.figures:
            distribution = _VERSIONS[contender]
            self.figures[contender] = Figures(
                contender, f"{distribution} {version(distribution)}", list(_NOTES[contender])
            )
        return self.figures[contender]

    def tell(self, contender: str, workload: str, found: Any) -> None:
        """Keep what is behind a figure."""
        told = asdict(found) if hasattr(found, "__dataclass_fields__") else found
        self.details.setdefault(contender, {})[workload] = told

    def punctual(self, contender: str, workload: str, variant: str, found: Punctuality) -> None:
        """Keep a lateness, and how well it is known; of several variants the later one counts."""
        figures = self.of(contender)
        before: Lateness | None = getattr(figures, workload)
        if before is None or found.lateness.p99_s > before.p99_s:
            setattr(figures, workload, found.lateness)
        self.tell(contender, f"{workload}_{variant}" if variant else workload, found)

    @property
    def failed(self) -> list[str]:
        """What went wrong, one line each."""
        return [
            *self.failures,
            *(f"{one.name}: {line}" for one in self.figures.values() for line in one.failures),
        ]
