"""Job `drain`: many executors hand an overdue backlog over, in the term of the driver."""

from postdate.spark.draining.job import Drained, drain
from postdate.spark.draining.order import DrainOptions

__all__ = ["DrainOptions", "Drained", "drain"]
