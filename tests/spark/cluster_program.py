"""Schedules on a cluster of two executors on this machine.

    python cluster_program.py SETTINGS_FILE ROWS

Prints what `schedule` told, as JSON.
"""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime

from pyspark.sql import functions as f

from postdate.spark import SettingsReference, local_session
from postdate.spark.scheduling import schedule

FIRST = datetime(2040, 1, 1, 7, tzinfo=UTC)


def main() -> None:
    file, rows = sys.argv[1], int(sys.argv[2])
    session = local_session(
        "local-cluster[2,1,1024]",
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__multiplier="1.1",
        spark__speculation__quantile="0.1",
        spark__executorEnv__PYTHONPATH=":".join(sys.path),
    )
    frame = session.range(rows).select(
        f.concat(f.lit("c"), f.col("id").cast("string")).alias("message_id"),
        f.lit("target").alias("destination"),
        (f.lit(FIRST) + f.expr("make_dt_interval(0, 0, 0, id)")).alias("due_time"),
        f.lit("x").alias("body"),
    )
    done = schedule(frame, SettingsReference(file=file), run="cluster", rows_per_bucket=500)
    session.stop()
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
