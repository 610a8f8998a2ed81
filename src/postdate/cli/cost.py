"""`postdate stats --cost`: what requests cost, by the records of a log or by the settings."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from postdate.cli.command import Call
from postdate.core import forecast
from postdate.core.forecast import Pace, Requests
from postdate.engine.reception import IDLE_SECONDS
from postdate.errors import UsageError
from postdate.events import RequestsCounted
from postdate.model.prices import Cost, billed
from postdate.model.requests import Outcome, Service
from postdate.settings import Settings, load_prices

#: Hours of a month, as Azure's price calculator counts them.
MONTH_HOURS = 730
_MILLION = 1_000_000
_STDIN = "-"
_HOUR = "hour"


class _Record(msgspec.Struct):
    """What we read of a line of a log; lines of other events have other fields."""

    event: str = ""
    covered_s: float = 0.0
    counts: dict[str, dict[str, int]] = {}
    handed_over: int = 0


@dataclass(slots=True)
class Measured:
    """The sum of all records."""

    records: int = 0
    covered_s: float = 0.0
    handed_over: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, record: _Record) -> None:
        """One more."""
        self.records += 1
        self.covered_s += record.covered_s
        self.handed_over += record.handed_over
        for operation, outcomes in record.counts.items():
            known = self.counts.setdefault(operation, {})
            for outcome, count in outcomes.items():
                known[outcome] = known.get(outcome, 0) + count


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that costs requests. `per`: hour, run, million messages, or all of what waits."""

    what: str
    per: str
    requests: Requests

    @property
    def count(self) -> float:
        """Requests in all."""
        return sum(self.requests.values())


def measure(names: Iterable[str]) -> Measured:
    """Sum up the `requests_counted` records in logs; other lines are passed over.

    Raises:
        UsageError: a file can't be read, or there is no such record in any.
    """
    measured, names = Measured(), list(names)
    for name in names:
        for record in _records(name):
            measured.add(record)
    if not measured.records:
        raise UsageError(
            f"no {RequestsCounted.name} records in {', '.join(names)}; `postdate run --log-format json` "
            "writes them to stderr"
        )
    return measured


def _records(name: str) -> Iterator[_Record]:
    decoder = msgspec.json.Decoder(_Record)
    try:
        with nullcontext(sys.stdin.buffer) if name == _STDIN else Path(name).open("rb") as lines:
            for line in lines:
                try:
                    record = decoder.decode(line)
                except msgspec.MsgspecError:
                    continue
                if record.event == RequestsCounted.name:
                    yield record
    except OSError as error:
        raise UsageError(f"--requests {name}: {error.strerror}") from None


def print_measured(call: Call, names: Iterable[str]) -> None:
    """Print what a log says that was asked, and what it cost."""
    prices, measured = load_prices(call.settings().prices), measure(names)
    cost = prices.cost(billed(measured.counts))
    operations = [
        (
            operation,
            sum(outcomes.values()),
            outcomes.get(Outcome.THROTTLED, 0),
            prices.cost(billed({operation: outcomes})).amount,
        )
        for operation, outcomes in sorted(measured.counts.items())
    ]
    per_million = cost.amount / measured.handed_over * _MILLION if measured.handed_over else None
    values: dict[str, object] = {
        "prices": prices.about,
        "currency": prices.currency,
        "covered_s": measured.covered_s,
        "requests": sum(requests for _, requests, _, _ in operations),
        "handed_over": measured.handed_over,
        "unpriced": cost.unpriced,
    }
    if call.out.json:
        names_of = ("operation", "requests", "throttled", "cost")
        values |= {"cost": cost.amount, "cost_per_million": per_million}
        values["operations"] = [dict(zip(names_of, one, strict=True)) for one in operations]
        call.out.line(values)
        return
    call.out.record({**values, "cost": _money(cost.amount), "cost_per_million": _money(per_million)})
    call.out.text("")
    call.out.table(
        ["operation", "requests", "throttled", prices.currency],
        ((*counted, _money(amount)) for *counted, amount in operations),
    )


async def print_expected(call: Call) -> None:
    """Print what the endpoint will cost, by its settings and by what waits."""
    async with call.endpoint() as endpoint:
        waiting = 0
        async for _ in endpoint.upcoming():
            waiting += 1
        settings, prices = endpoint.settings, endpoint.parts.prices
    lines = [(line, prices.cost(line.requests)) for line in expected(settings, waiting)]
    if call.out.json:
        found = [_as_json(line, cost) for line, cost in lines]
        call.out.line(
            {"prices": prices.about, "currency": prices.currency, "waiting": waiting, "expected": found}
        )
        return
    call.out.record({"prices": prices.about, "waiting": waiting})
    call.out.text("")
    call.out.table(
        ["what", "per", "requests", prices.currency, f"a month ({MONTH_HOURS} h)"],
        (
            (line.what, line.per, f"{line.count:,.0f}", _money(cost.amount), _money(_per_month(line, cost)))
            for line, cost in lines
        ),
    )


def pace_of(settings: Settings) -> Pace:
    """What the forecast needs to know."""
    return Pace(
        lease=settings.lease_duration,
        probe=settings.probe_interval,
        idle_interval=settings.idle_interval,
        lookahead=settings.lookahead,
        direct_limit=settings.direct_limit,
        unremoved_limit=settings.unremoved_limit,
        receive_batch=settings.receive_batch,
        receive_pause_s=IDLE_SECONDS[1],
        timeout_manager=not settings.disable_timeout_manager,
    )


def expected(settings: Settings, waiting: int) -> list[Line]:
    """What will cost requests."""
    pace = pace_of(settings)
    row = forecast.handed_over(pace)
    by_row = forecast.summed(forecast.scheduled_as_row(together=False), row)
    together = forecast.summed(forecast.scheduled_as_row(together=True), row)
    lines = [
        Line("leader, nothing due", _HOUR, forecast.idle_leader(pace)),
        Line("leader, messages in each second", _HOUR, forecast.busy_leader(pace)),
        Line("each follower", _HOUR, forecast.follower(pace)),
        Line("each consumer of an empty queue", _HOUR, forecast.idle_consumer(pace)),
        Line("deliver-due, nothing due", "run", forecast.single_pass()),
    ]
    if settings.check_destinations:
        lines.append(Line("each destination that is scheduled to", _HOUR, forecast.checked_destination()))
    for what, requests in (
        ("schedule and hand over, by rows", by_row),
        ("schedule_many and hand over, by rows", together),
        ("schedule straight into queues", forecast.scheduled_directly()),
        ("receive and acknowledge", forecast.received(pace)),
        ("large bodies, on top", forecast.large_body()),
    ):
        lines.append(Line(what, "million messages", forecast.times(_MILLION, requests)))
    lines.append(Line("hand over what waits", "all", forecast.times(waiting, row)))
    if settings.store is None:
        return lines
    # What its own service asks for, nobody here knows.
    return [replace(line, requests=forecast.without(Service.TABLE, line.requests)) for line in lines]


def _as_json(line: Line, cost: Cost) -> dict[str, object]:
    return {
        "what": line.what,
        "per": line.per,
        "requests": line.count,
        "counts": {str(kind): count for kind, count in sorted(line.requests.items())},
        "cost": cost.amount,
        "cost_per_month": _per_month(line, cost),
        "unpriced": cost.unpriced,
    }


def _per_month(line: Line, cost: Cost) -> float | None:
    return cost.amount * MONTH_HOURS if line.per == _HOUR else None


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.6f}"
