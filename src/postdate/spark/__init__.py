"""Bulk on Spark: schedule, drain, migrate, audit, forecast and snapshot, on data frames.

Needs the extra `postdate[spark]` and Java 17 or later. The one part of the package that imports pyspark.

    session = local_session()
    frame = session.read.format("postdate").option("endpoint", "Contoso.Orders").load()
"""

from postdate.spark.reference import SettingsReference
from postdate.spark.session import local_session, register

__all__ = ["SettingsReference", "local_session", "register"]
