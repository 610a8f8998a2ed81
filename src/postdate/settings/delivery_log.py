"""Settings of the delivery log."""

from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from postdate.model.durations import format_duration
from postdate.settings.fields import Duration


class DeliveryLogSettings(BaseModel):
    """Read by whoever opens an endpoint."""

    delivery_log: bool = Field(
        False,
        description="Keep a record of each message that is scheduled, handed over or given up, as append "
        "blobs in the endpoint's container.",
    )
    delivery_log_interval: Duration = Field(
        timedelta(seconds=5),
        description="Records wait so long to be written together; a crash loses those that wait.",
    )

    @field_validator("delivery_log_interval")
    @classmethod
    def _interval_range(cls, value: timedelta) -> timedelta:
        if not timedelta(milliseconds=50) <= value <= timedelta(hours=1):
            raise ValueError(f"must be from 50 ms to 1 hour; it is {format_duration(value)}")
        return value
