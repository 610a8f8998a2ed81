"""Settings of the inbox: where consumers remember what they are done with, and for how long."""

from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from postdate.model.durations import format_duration
from postdate.settings.fields import Duration


class InboxSettings(BaseModel):
    """Read by the inbox alone."""

    inbox_table: str | None = Field(
        None, description="Name of the inbox table, instead of inbox<sha1(endpoint)>."
    )
    inbox_retention: Duration = Field(
        timedelta(days=7),
        description="How long an inbox remembers a message: the longest life of a duplicate that it drops.",
    )

    @field_validator("inbox_retention")
    @classmethod
    def _retention_range(cls, value: timedelta) -> timedelta:
        if not timedelta(0) < value <= timedelta(days=366):
            raise ValueError(f"must be more than zero, at most 366 days; it is {format_duration(value)}")
        return value
