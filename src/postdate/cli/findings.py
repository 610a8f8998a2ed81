"""What `postdate doctor` tells: one check each, and those that need no storage."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from postdate.core.rest import longest_sleep
from postdate.errors import AccessDenied, ConfigurationError, PostdateError
from postdate.model.durations import format_duration
from postdate.settings import LeaseTarget, Settings


class Status(StrEnum):
    """How a check ended. Only `failed` changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was found, and what to do about it."""

    name: str
    status: Status
    found: str
    fix: str | None = None


def failed(name: str, error: PostdateError) -> Check:
    """A check that ended in an error; our errors end in the way out."""
    found, _, fix = str(error).rpartition("; ")
    if found:
        return Check(name, Status.FAILED, found, fix)
    denied = isinstance(error, AccessDenied)
    way_out = "use a key, signature or identity that may do this" if denied else "run it again later"
    return Check(name, Status.FAILED, fix, way_out)


def check_names(settings: Settings) -> Check:
    """Table, lease and queue names."""
    lease = (
        "its container" if settings.lease_target is LeaseTarget.CONTAINER else "leader.json in its container"
    )
    if settings.delays_table is None:
        made = f"made of endpoint {settings.endpoint!r}"
    else:
        made = "from POSTDATE_DELAYS_TABLE, which every process of this endpoint needs"
    rows = "table" if settings.store is None else f"rows in {settings.store}, container"
    found = f"{rows} {settings.table_name} ({made}), lease on {lease}, error queue {settings.error_queue}"
    try:
        return Check("names", Status.OK, f"{found}, own queue {settings.own_queue}")
    except ConfigurationError:
        return Check(
            "names", Status.WARNING, f"{found}, no own queue", "set POSTDATE_QUEUE if it is to receive"
        )


def check_lookahead(settings: Settings, uncertainty: float | None) -> Check:
    """Whether a leader's crash can make a message late."""
    takeover = settings.lease_duration + settings.probe_interval + timedelta(seconds=uncertainty or 0.0)
    unseen = longest_sleep(settings.idle_interval, direct_limit=settings.direct_limit, takeover=takeover)
    shown = (
        f"{format_duration(settings.lookahead)}, direct within {format_duration(settings.direct_limit)}; "
        f"lease {format_duration(settings.lease_duration)} + probe {format_duration(settings.probe_interval)}"
    )
    late = max(takeover - settings.lookahead, takeover + unseen - settings.direct_limit)
    if late <= timedelta(0):
        return Check("lookahead", Status.OK, f"{shown}: a leader's crash makes nobody late")
    needed = int((takeover + min(unseen, settings.lookahead)).total_seconds()) + 1
    return Check(
        "lookahead",
        Status.WARNING,
        f"{shown}: a leader's crash can make messages up to {format_duration(_tenths(late))} late",
        f"set POSTDATE_LOOKAHEAD and POSTDATE_DIRECT_WITHIN to {needed} or more, if that matters",
    )


def _tenths(span: timedelta) -> timedelta:
    return timedelta(seconds=round(span.total_seconds(), 1))


def check_reach(answers: Mapping[str, PostdateError | None], description: Mapping[str, str]) -> list[Check]:
    """Whether each service answers, and at which address."""
    where = {
        "table": description.get("table", ""),
        "store": description.get("store", ""),
        "queue": description.get("queues", ""),
        "blob": description.get("lease", ""),
    }
    checks = []
    for name, error in answers.items():
        title = f"reach {name}"
        if error is not None:
            checks.append(failed(title, error))
            continue
        address = where.get(name) or description.get(f"alias {name.partition('@')[2]}", "")
        checks.append(Check(title, Status.OK, address))
    return checks
