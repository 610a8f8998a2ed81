"""Errors of Spark's tasks, told in one line."""

import pytest

from postdate.errors import (
    ConfigurationError,
    DestinationNotFound,
    InvalidDueTime,
    NotProvisioned,
    PostdateError,
    UsageError,
)
from postdate.spark.failures import translated

TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 98, in main
{error}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:608)
"""


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("postdate.errors.NotProvisioned: table x is missing", NotProvisioned, "table x is missing"),
        ("postdate.errors.InvalidDueTime: it is naive", InvalidDueTime, "it is naive"),
        (
            "postdate.errors.DestinationNotFound: queue 'x' is not there",
            PostdateError,
            "queue 'x' is not there",
        ),
        ("ModuleNotFoundError: No module named 'postdate'", ConfigurationError, "can't import postdate"),
        (
            "ZeroDivisionError: division by zero",
            PostdateError,
            "a task ended with ZeroDivisionError: division by zero",
        ),
    ],
)
def test_an_error_in_a_task_is_one_line_of_its_kind(line, kind, text):
    error = translated(TRACE.format(error=line))
    assert isinstance(error, kind)
    assert text in str(error)
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)


def test_the_last_of_ours_is_what_ended_it():
    chained = "postdate.errors.StorageError: first\n\nDuring handling:\npostdate.errors.UsageError: second\n"
    assert str(translated(TRACE.format(error=chained))) == "second"


def test_errors_of_spark_that_are_the_users_are_usage():
    assert isinstance(
        translated("[PATH_NOT_FOUND] Path does not exist: file:/x.csv. SQLSTATE: 42K03"), UsageError
    )


def test_what_spark_finds_wrong_before_it_reads_is_usage_with_a_way_out():
    text = "[PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true)). SQLSTATE: 42846"
    error = translated(text, analysis=True)
    assert isinstance(error, UsageError)
    assert "coerce_timestamps='us'" in str(error)


def test_an_error_of_ours_stays_one_also_where_spark_plans():
    text = TRACE.format(error="postdate.errors.NotProvisioned: table x is missing")
    assert isinstance(translated(text, analysis=True), NotProvisioned)


def test_an_error_made_of_more_than_a_text_keeps_its_text():
    assert DestinationNotFound("x").destination == "x"
    assert str(translated("postdate.errors.DestinationNotFound: gone")) == "gone"


@pytest.mark.parametrize(
    ("causes", "kind", "said"),
    [
        (
            ": org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/data/x",
            UsageError,
            "Spark can't use this path: Parent path is not a directory: file:/data/x",
        ),
        (
            (
                ": org.apache.spark.SparkException: Job aborted\n\tat X\n"
                "Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x (exists=false)"
            ),
            UsageError,
            "Spark can't use this path: Mkdirs failed to create file:/proc/x (exists=false)",
        ),
        (
            (
                ": java.lang.RuntimeException: java.lang.ClassNotFoundException: Class Y\n\tat X\n"
                "Caused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.Y not found"
            ),
            ConfigurationError,
            "--packages org.apache.hadoop:hadoop-azure",
        ),
        (
            (
                ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
                "file:///data/short.csv.  SQLSTATE: KD001\n\tat X\n"
                "Caused by: org.apache.spark.SparkRuntimeException: [MALFORMED_CSV_RECORD] Malformed CSV record: "
                "1,x SQLSTATE: KD000"
            ),
            PostdateError,
            (
                "Spark: /data/short.csv: SparkRuntimeException: [MALFORMED_CSV_RECORD] Malformed CSV record: 1,x "
                "(each line needs as many values as the header line; quote those with commas)"
            ),
        ),
        (
            ": java.lang.OutOfMemoryError: Java heap space",
            PostdateError,
            "Spark: OutOfMemoryError: Java heap space",
        ),
    ],
)
def test_an_error_of_the_jvm_is_its_last_cause(causes, kind, said):
    error = translated(f"An error occurred while calling o7.parquet.\n{causes}\n\tat java.lang.Thread.run\n")
    assert type(error) is kind
    assert said in str(error)
