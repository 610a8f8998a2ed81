"""Data sources of ours: `postdate`, the waiting rows."""

from postdate.spark.source.delays import DelaysSource

#: All of them, as `postdate.spark.register` makes them known.
SOURCES = (DelaysSource,)

__all__ = ["SOURCES", "DelaysSource"]
