"""What an audit found."""

from dataclasses import dataclass
from datetime import datetime

from postdate.spark.auditing.lateness import Lateness


@dataclass(frozen=True, slots=True)
class Example:
    """A message with a verdict that somebody should look at."""

    verdict: str
    message_id: str
    destination: str
    due_time: datetime | None
    #: When its queue showed it first.
    visible_at: datetime | None
    lateness_s: float | None
    deliveries: int


@dataclass(frozen=True, slots=True)
class Audited:
    """The verdict of the whole: what a gate goes by."""

    #: Nothing is lost, early or at a wrong destination.
    ok: bool
    #: When the waiting rows were looked at, by the service's clock.
    as_of: datetime
    #: Rows of the verdicts: a message counts once for each destination.
    messages: int
    #: How many there are of each verdict.
    verdicts: dict[str, int]
    #: Of those that wait, how many should have been handed over by more than the limit ago.
    overdue: int
    late_after_s: float
    #: Records of the log that were read.
    log_records: int
    #: Records that writers had to drop: what looks lost may be delivered.
    log_gaps: int
    #: Lines of the log that are none of ours.
    log_unreadable: int
    #: False: more lies in the error queue than was read.
    error_queue_complete: bool
    lateness: tuple[Lateness, ...]
    #: A few of each defect.
    examples: tuple[Example, ...]
    seconds: float

    def remarks(self) -> list[str]:
        """What makes the verdicts less certain, or needs a look, in sentences."""
        gaps = f"The log lacks {self.log_gaps:,} records that could not be written"
        said = {
            f"{gaps}: what looks lost may be delivered.": self.log_gaps,
            f"{self.log_unreadable:,} lines of the log can't be read.": self.log_unreadable,
            "The error queue holds more than was read.": not self.error_queue_complete,
            f"{self.overdue:,} messages wait that are overdue: is a leader running?": self.overdue,
        }
        return [sentence for sentence, holds in said.items() if holds]
