"""Job `schedule`: the messages of a frame become waiting rows."""

from postdate.spark.scheduling.job import Scheduled, schedule

__all__ = ["Scheduled", "schedule"]
