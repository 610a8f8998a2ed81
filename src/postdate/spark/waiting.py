"""Frames of what waits, with no more columns than are needed.

PySpark 4.3 asks a data source in Python for all of its columns, whatever a query selects: only a schema that
is given to the reader limits what is read from the table.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from postdate.spark.reference import SettingsReference
from postdate.spark.schema import DELAYS


def read_waiting(
    session: SparkSession,
    settings: SettingsReference,
    columns: Sequence[str],
    *,
    source: str = "postdate",
    schema: StructType = DELAYS,
) -> DataFrame:
    """The waiting rows with these columns of the source's schema, lazily; nothing else is read of them."""
    asked = StructType([schema[name] for name in columns])
    return session.read.format(source).schema(asked).options(**settings.options()).load()
