"""Data sources of ours: `postdate`, the waiting rows; `postdate.log`, the delivery log;
`postdate.timeouts`, those of older endpoints.
"""

from postdate.spark.source.delays import DelaysSource
from postdate.spark.source.log import LogSource
from postdate.spark.source.timeouts import TimeoutsSource

#: All of them, as `postdate.spark.register` makes them known.
SOURCES = (DelaysSource, LogSource, TimeoutsSource)

__all__ = ["SOURCES", "DelaysSource", "LogSource", "TimeoutsSource"]
