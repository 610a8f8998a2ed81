"""Makes an archive of the classes that Spark loads, with which its Java starts in half the time.

    python java_archive.py FILE

Java passes over one that another Java or another Spark has made.
"""

import os
import sys
import tempfile
from pathlib import Path

from postdate.errors import PostdateError
from postdate.spark import local_session


def same(batches):
    yield from batches


def main() -> int:
    wanted = Path(sys.argv[1])
    made = wanted.with_suffix(f".{os.getpid()}")
    # Those of the tests, see conftest.py: a Java with another collector maps no archive's objects.
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit={made}"
    try:
        session = local_session("local[2,4]", spark__driver__extraJavaOptions=options)
    except PostdateError as error:
        print(f"java_archive: {error}", file=sys.stderr)
        return error.exit_code
    # What most jobs of ours load: a shuffle, Python in tasks, files.
    frame = session.range(1_000).mapInArrow(same, "id long").selectExpr("id", "id % 7 as part")
    with tempfile.TemporaryDirectory() as folder:
        frame.write.mode("append").parquet(folder)
        session.read.parquet(folder).groupBy("part").count().orderBy("part").collect()
    java = session.sparkContext._gateway.proc
    session.stop()
    java.stdin.close()
    java.wait()
    made.rename(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
