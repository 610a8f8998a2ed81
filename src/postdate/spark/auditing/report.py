"""The audit as one HTML page that needs nothing beside itself."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from postdate.spark.auditing.lateness import Lateness
from postdate.spark.auditing.reconcile import FAILURES
from postdate.spark.auditing.result import Audited
from postdate.spark.auditing.svg import bars, lines

_STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .5em 0 1.5em }
th, td { border-bottom: 1px solid #ddd; padding: .2em .9em .2em 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right }
.ok { color: #2f855a } .bad { color: #c53030 }
"""
_KINDS = {"destination": "By destination", "hour": "By hour of the due time", "term": "By term of the leader"}


def page(audited: Audited, endpoint: str) -> str:
    """The report of one endpoint."""
    word, kind = ("passed", "ok") if audited.ok else ("failed", "bad")
    title = f"Audit of {endpoint}"
    failures = frozenset(one.value for one in FAILURES)
    looked_at, limit = _instant(audited.as_of), f"{audited.late_after_s:g} s"
    parts = [
        f"<h1>{escape(title)}: <span class='{kind}'>{word}</span></h1>",
        f"<p>{audited.messages:,} messages; rows looked at {looked_at}; late is more than {limit}.</p>",
        *(f"<p class='bad'>{escape(remark)}</p>" for remark in audited.remarks()),
        "<h2>Verdicts</h2>",
        bars(audited.verdicts, failures),
        "<h2>Lateness</h2>",
        "<p>Seconds between the due time and being shown by the queue.</p>",
        *_lateness(audited.lateness),
    ]
    if audited.examples:
        rows = (
            (one.verdict, one.message_id, one.destination, _instant(one.due_time), _instant(one.visible_at))
            for one in audited.examples
        )
        parts += ["<h2>Examples</h2>", _table(("verdict", "message", "destination", "due", "shown"), rows)]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _lateness(groups: Sequence[Lateness]) -> list[str]:
    parts = [_percentiles([one for one in groups if one.by == "all"])]
    for kind, head in _KINDS.items():
        found = [one for one in groups if one.by == kind]
        if not found:
            continue
        parts.append(f"<h3>{head}</h3>")
        if kind == "hour":
            series = {
                name: [getattr(one, f"{name}_s") for one in found] for name in ("p50", "p90", "p99", "max")
            }
            parts.append(lines([one.group for one in found], series, "s"))
        parts.append(_percentiles(found))
    return parts


def _percentiles(groups: Iterable[Lateness]) -> str:
    rows = (
        (
            one.group,
            f"{one.deliveries:,}",
            *(f"{value:.3f}" for value in (one.p50_s, one.p90_s, one.p99_s, one.max_s)),
        )
        for one in groups
    )
    return _table(("", "deliveries", "p50", "p90", "p99", "max"), rows, numbers=True)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if numbers and n else ''}>{escape(value)}</{tag}>"
            for n, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', heads)}</tr>{body}</table>"


def _instant(value: datetime | None) -> str:
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%fZ")
