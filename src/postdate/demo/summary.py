"""What the demo found out, as figures."""

from collections.abc import Iterator
from dataclasses import dataclass

from postdate.demo.fleet import Fleet
from postdate.demo.ledger import Fate, Ledger, percentile
from postdate.settings import Settings


@dataclass(frozen=True, slots=True)
class Summary:
    """All measured; the names are the keys of `postdate demo --json`."""

    scheduled: int
    delivered: int
    cancelled: int
    to_error_queue: int
    lost: int
    early: int
    duplicates: int
    takeover_s: float | None
    #: From the due time to the consumer, by the latest that the service's clock can have shown.
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    lateness_max_s: float | None
    moved: int
    #: Cancellations and moves that came too late; those messages had to arrive as they were.
    too_late: int
    #: Messages that waited in a row; the others lay hidden in their queue from the start.
    via_row: int
    via_queue: int
    #: Cancelled messages that arrived all the same.
    cancelled_but_arrived: int
    redelivered: int
    killed_pid: int | None
    handed_over_at_kill: int | None
    seconds: float
    lookahead_s: float
    lease_s: float
    #: What was not as promised; empty is good.
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems

    @property
    def line(self) -> str:
        """The last line for people."""
        return (
            f"scheduled {self.scheduled:,}, delivered {self.delivered:,}, cancelled {self.cancelled:,}, "
            f"to error queue {self.to_error_queue:,}, lost {self.lost:,}, early {self.early:,}, "
            f"duplicates {self.duplicates:,}, take-over {_shown(self.takeover_s)} s, lateness p50/p99/max "
            f"{_shown(self.lateness_p50_s)}/{_shown(self.lateness_p99_s)}/{_shown(self.lateness_max_s)} s"
        )


def sum_up(ledger: Ledger, fleet: Fleet, settings: Settings, seconds: float) -> Summary:
    """The figures of a finished run."""
    promises = ledger.promises.values()
    lateness = ledger.lateness()
    lost = [name for name, promise in ledger.promises.items() if not promise.settled]
    early = [name for name, one in ledger.promises.items() if one.lateness is not None and one.lateness < 0]
    strayed = [name for name, one in ledger.promises.items() if one.fate is Fate.STAY_AWAY and one.copies]
    duplicates = sum(max(0, len(promise.copies) - 1) for promise in promises)
    return Summary(
        scheduled=len(ledger.promises),
        delivered=ledger.delivered,
        cancelled=sum(promise.fate is Fate.STAY_AWAY for promise in promises),
        to_error_queue=sum(promise.failed for promise in promises),
        lost=len(lost),
        early=len(early),
        duplicates=duplicates,
        takeover_s=_rounded(fleet.takeover_s),
        lateness_p50_s=_rounded(percentile(lateness, 0.5)),
        lateness_p99_s=_rounded(percentile(lateness, 0.99)),
        lateness_max_s=_rounded(percentile(lateness, 1.0)),
        moved=sum(promise.moved for promise in promises),
        too_late=ledger.too_late,
        via_row=sum(promise.path == "row" for promise in promises),
        via_queue=sum(promise.path != "row" for promise in promises),
        cancelled_but_arrived=len(strayed),
        redelivered=ledger.redelivered,
        killed_pid=fleet.killed.pid if fleet.killed else None,
        handed_over_at_kill=fleet.handed_over_at_kill,
        seconds=round(seconds, 1),
        lookahead_s=settings.lookahead.total_seconds(),
        lease_s=settings.lease_duration.total_seconds(),
        problems=(
            *_named("lost", lost),
            *_named("early", early),
            *_named("cancelled, but arrived", strayed),
            *_too_many(duplicates, settings.unremoved_limit),
            *_processes(fleet),
            *ledger.problems,
        ),
    )


def _named(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        yield f"{what}: {', '.join(names[:5])}{more}"


def _too_many(duplicates: int, limit: int) -> Iterator[str]:
    if duplicates > limit:
        yield f"{duplicates:,} duplicates; a killed leader leaves at most {limit:,} rows unremoved"


def _processes(fleet: Fleet) -> Iterator[str]:
    if fleet.killed is None:
        yield "no leader was killed: none was busy"
    elif fleet.takeover_s is None:
        yield "nobody took over from the killed leader"
    if any(fleet.exits):
        yield f"processes did not stop cleanly: exit statuses {fleet.exits}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
