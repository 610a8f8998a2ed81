"""Files that `postdate spark schedule` and `audit` can't read: which one, why, and the way out."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

from postdate.cli.spark.sessions import read_frame
from postdate.errors import PostdateError, UsageError
from postdate.spark.failures import told_in_one_line


def nanoseconds(path):
    due = pa.array([datetime(2040, 1, 1, tzinfo=UTC)], pa.timestamp("ns", "UTC"))
    parquet.write_table(pa.table({"due_time": due}), path, version="2.6")


CASES = {
    "no parquet": ("a.parquet", lambda path: path.write_text("none"), "is not a Parquet file"),
    "empty parquet": ("b.parquet", lambda path: path.write_text(""), "name other files, or another --format"),
    "nanoseconds": ("c.parquet", nanoseconds, "coerce_timestamps='us'"),
    "too few values": (
        "d.csv",
        lambda path: path.write_text("a,b\n1\n"),
        "as many values as the header line",
    ),
    "no json": ("e.json", lambda path: path.write_text('{"a": 1,\nnope\n'), "one whole object on each line"),
    "no suffix": ("folder", lambda path: path.mkdir(), "its name tells no format; give --format csv"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_cannot_be_read_is_named_with_the_way_out(spark, tmp_path, case):
    name, make, said = CASES[case]
    make(tmp_path / name)
    with pytest.raises(PostdateError) as failed, told_in_one_line():
        read_frame(spark, [tmp_path / name], None, []).collect()
    told = str(failed.value)
    assert str(tmp_path / name) in told
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize("expression", ["nosuch as body", "concat('a as body"])
def test_a_select_that_spark_does_not_take_is_the_users(spark, tmp_path, expression):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"^--select: "):
        read_frame(spark, [tmp_path / "a.csv"], None, [expression])
