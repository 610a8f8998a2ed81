"""Data sources of ours: `postdate`, the waiting rows; `postdate.log`, the delivery log."""

from postdate.spark.source.delays import DelaysSource
from postdate.spark.source.log import LogSource

#: All of them, as `postdate.spark.register` makes them known.
SOURCES = (DelaysSource, LogSource)

__all__ = ["SOURCES", "DelaysSource", "LogSource"]
