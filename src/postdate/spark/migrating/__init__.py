"""`postdate spark migrate`: old timeouts, in Azure tables or SQL, become waiting rows."""

from postdate.spark.migrating.job import abort, migrate, preview, status
from postdate.spark.migrating.results import Migrated, MigrationStatus
from postdate.spark.migrating.sources import AzureSource, SqlSource

__all__ = [
    "AzureSource",
    "Migrated",
    "MigrationStatus",
    "SqlSource",
    "abort",
    "migrate",
    "preview",
    "status",
]
