"""Job `audit`: what was scheduled against the delivery log, the waiting rows and the error queue."""

from postdate.spark.auditing.job import LATE_AFTER, Reading, audit
from postdate.spark.auditing.reconcile import Verdict, reconcile
from postdate.spark.auditing.result import Audited, Example

__all__ = ["LATE_AFTER", "Audited", "Example", "Reading", "Verdict", "audit", "reconcile"]
