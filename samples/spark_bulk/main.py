"""Reminders by the million from a CSV file become waiting rows, once each; then the account is audited.

    python samples/spark_bulk/main.py [--rows NUMBER] [--folder bulk-out]

Starts a storage service on this machine, writes the file, schedules it on Spark, and keeps in the folder what
was refused, a plot of what falls due when, and the audit's report. With POSTDATE_CONNECTION set, it works on
that account instead.
"""

import argparse
import asyncio
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from postdate import Endpoint, PostdateError, Settings
from postdate.local import Azurite
from postdate.settings import variable
from postdate.spark import SettingsReference, local_session
from postdate.spark.auditing import Reading, audit
from postdate.spark.forecasting import forecast
from postdate.spark.forecasting.plot import plot
from postdate.spark.reference import shared_with_tasks
from postdate.spark.scheduling import schedule

QUEUE = "reminders"
FIRST = datetime(2040, 1, 1, 8, tzinfo=UTC)
#: Each so many rows, one has a due time without a zone, as files of people have.
ODD_EVERY = 1_000
#: Messages a second that one leader hands over, for the forecast.
RATE = 900
COLUMNS = (
    "concat('trial-', customer) as message_id",
    f"'{QUEUE}' as destination",
    "ends as due_time",
    "struct(customer, name) as body",
)


def write_file(path: Path, rows: int) -> None:
    """Customers whose trial ends, spread over ten days; row by row, however many."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("customer", "name", "ends"))
        for n in range(rows):
            ends = FIRST + timedelta(seconds=n * 864_000 / rows)
            odd = n % ODD_EVERY == ODD_EVERY - 1
            lines.writerow(
                (n, f"Customer {n}", ends.replace(tzinfo=None).isoformat() if odd else ends.isoformat())
            )


@contextmanager
def account() -> Iterator[Settings]:
    """The account that the environment names, or a service of our own."""
    if variable("POSTDATE_CONNECTION"):
        yield Settings(endpoint="Contoso.Trials")
        return
    with Azurite() as azurite:
        yield Settings(endpoint="Contoso.Trials", connection=azurite.connection_string)


async def set_up(settings: Settings) -> None:
    async with Endpoint(settings) as endpoint:
        await endpoint.setup(QUEUE)


def load(session: SparkSession, settings: SettingsReference, trials: DataFrame, folder: Path) -> bool:
    """Schedule and audit; whether all is well."""
    done = schedule(trials, settings, run="trials-2040", quarantine=str(folder / "refused"))
    print(
        f"scheduled {done.stored:,} of {done.rows:,} rows in {done.seconds:.0f} s; refused {done.refused:,}"
    )
    for message_id, reason in done.examples[:1]:
        print(f"  {message_id}: {reason}")
    again = schedule(trials, settings, run="trials-2040")
    same = again.checksum == done.checksum
    print(
        f"the same once more: {'the same' if same else 'OTHER'} {again.stored:,} messages wait; "
        f"{again.buckets - again.resumed} of {again.buckets} buckets have refused rows and were tried again"
    )

    ahead = forecast(session, settings, rate=RATE, destinations=False)
    plot(ahead, folder / "forecast.png")
    if ahead.worst is not None:
        worst = ahead.worst
        print(
            f"forecast: the worst minute is {worst.minute:%Y-%m-%d %H:%M}, with {worst.messages:,} messages; "
            f"at {RATE} a second they are {worst.late_seconds:.0f} s late at most"
        )

    good = trials.where("due_time rlike '(Z|[+-][0-9:]+)$'")
    expected = good.selectExpr("message_id", "destination", "cast(due_time as timestamp) as due_time")
    found = audit(session, settings, expected, Reading(html=folder / "audit.html"))
    told = ", ".join(f"{verdict} {count:,}" for verdict, count in found.verdicts.items() if count)
    print(f"audit: {'passed' if found.ok else 'FAILED'}; {told}")
    print(f"see audit.html and forecast.png in {folder}, and there in refused the rows that were refused")
    return found.ok and same and done.stored + done.refused == done.rows


def main() -> int:
    options = argparse.ArgumentParser(description="A CSV of reminders to waiting rows, and an audit.")
    # The local service keeps all rows in memory, and goes through them for each page: it bears no million.
    rows = 1_000_000 if variable("POSTDATE_CONNECTION") else 200_000
    options.add_argument("--rows", type=int, default=rows)
    options.add_argument("--folder", type=Path, default=Path("bulk-out"))
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "trials.csv"
    write_file(file, given.rows)
    print(f"wrote {given.rows:,} rows to {file}")
    try:
        with account() as settings, shared_with_tasks(settings) as reference:
            asyncio.run(set_up(settings))
            session = local_session()
            trials = session.read.option("header", "true").csv(str(file)).selectExpr(*COLUMNS)
            well = load(session, reference, trials, given.folder)
            session.stop()
    except PostdateError as error:
        print(f"spark_bulk: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
