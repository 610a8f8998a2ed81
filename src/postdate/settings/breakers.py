"""Settings of the breakers: when a lasting failure becomes critical (delayed-message-store, section 4)."""

from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from postdate.model.durations import format_duration
from postdate.settings.fields import Duration

_HALF_A_MINUTE = timedelta(seconds=30)


class BreakerSettings(BaseModel):
    """Read by the breakers alone."""

    time_to_trigger_store_circuit_breaker: Duration = Field(
        _HALF_A_MINUTE, description="Storing delayed messages has failed for so long: critical."
    )
    time_to_trigger_fetch_circuit_breaker: Duration = Field(
        _HALF_A_MINUTE, description="Reading due messages has failed for so long: critical."
    )
    time_to_trigger_dispatch_circuit_breaker: Duration = Field(
        _HALF_A_MINUTE, description="No dispatch succeeded for so long, and some failed: critical."
    )
    maximum_recovery_failures_per_second: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="So many failures of failure handling itself, on the average of 30 s: critical.",
    )

    @field_validator(
        "time_to_trigger_store_circuit_breaker",
        "time_to_trigger_fetch_circuit_breaker",
        "time_to_trigger_dispatch_circuit_breaker",
    )
    @classmethod
    def _window(cls, value: timedelta) -> timedelta:
        if not timedelta(0) < value <= timedelta(days=1):
            raise ValueError(f"must be more than zero, at most a day; it is {format_duration(value)}")
        return value
