"""A driver of its own, and a cluster: a master and two workers, whose host names differ though they are one.

    python cluster_program.py FOLDER

Schedules for each line of JSON that comes in (file of `settings`, `run`, how many rows in each of its `hours`,
`rows_per_bucket`), and prints what `schedule` told. By then all of it is in Spark's event log, in the folder.
"""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from postdate.spark import SettingsReference, local_session
from postdate.spark.scheduling import schedule

FIRST = datetime(2040, 1, 1, 7, tzinfo=UTC)
#: Spark starts no copy of a task on a host that has it already.
HOSTS = ("127.0.0.1", "localhost")
MEGABYTES = 512


def cluster(work):
    """Starts them in the JVM that the session will use, and ends with it; the master's URL."""
    SparkContext._ensure_initialized(conf=SparkConf())
    jvm = SparkContext._jvm
    deploy, nothing = jvm.org.apache.spark.deploy, jvm.scala.Option.empty()
    conf = jvm.org.apache.spark.SparkConf().set("spark.master.rest.enabled", "false")
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1().address()
    urls = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = f"spark://{master.host()}:{master.port()}"
    for number, host in enumerate(HOSTS, 1):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, MEGABYTES, urls, str(work), jvm.scala.Option.apply(number), conf, nothing
        )
    return urls[0]


def frame_of(session, run, hours):
    """So many messages in each hour, spread over it."""
    return reduce(
        DataFrame.union,
        (
            session.range(rows).select(
                f.concat(f.lit(f"{run}-{hour}-"), f.col("id").cast("string")).alias("message_id"),
                f.lit("target").alias("destination"),
                (f.lit(FIRST) + f.expr(f"make_dt_interval(0, {hour}, 0, id * 3600 / {rows})")).alias(
                    "due_time"
                ),
                f.lit("x").alias("body"),
            )
            for hour, rows in enumerate(hours)
        ),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    session = local_session(
        cluster(folder / "work"),
        spark__cores__max=str(len(HOSTS)),
        spark__scheduler__minRegisteredResourcesRatio="1",
        spark__executor__memory=f"{MEGABYTES}m",
        spark__executorEnv__PYTHONPATH=":".join(sys.path),
        spark__shuffle__reduceLocality__enabled="false",  # tasks begin in their order, on any host
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__multiplier="1.1",
        spark__speculation__quantile="0.1",
        spark__eventLog__enabled="true",
        spark__eventLog__dir=folder.as_uri(),
        spark__eventLog__compress="false",
        spark__eventLog__rolling__enabled="false",
    )
    session.range(1).count()  # begins when both executors are there
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        done = schedule(
            frame_of(session, order["run"], order["hours"]),
            SettingsReference(file=order["settings"]),
            run=order["run"],
            rows_per_bucket=order["rows_per_bucket"],
        )
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        print(json.dumps(asdict(done)), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
