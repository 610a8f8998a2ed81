"""Settings of the receiver and of what happens when a handler fails (recoverability)."""

from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from postdate.model.durations import format_duration
from postdate.model.limits import RECEIVE_MESSAGES
from postdate.settings.fields import Duration

_YEAR = timedelta(days=366)


class ReceivingSettings(BaseModel):
    """Read by the receiver alone."""

    visibility_timeout: Duration = Field(
        timedelta(seconds=30),
        description="How long a received message stays hidden; prolonged while its handler works.",
    )
    receive_batch: int = Field(
        RECEIVE_MESSAGES, ge=1, le=RECEIVE_MESSAGES, description="Messages in one receive, at most."
    )
    receive_concurrency: int = Field(16, ge=1, le=512, description="Messages that are handled at once.")
    receive_idle_interval: Duration = Field(
        timedelta(seconds=1), description="Longest wait between two looks at an empty queue."
    )
    stop_grace: Duration = Field(
        timedelta(seconds=20), description="Time that handlers have to end when the process is stopped."
    )
    handler_timeout: Duration = Field(
        timedelta(minutes=10), description="A handler that takes longer has failed; 0: it may take for ever."
    )
    immediate_retries: int = Field(
        5, ge=0, le=1000, description="Attempts at once after a failed one, each time the message is taken."
    )
    delayed_retries: int = Field(
        3, ge=0, le=1000, description="Times that a failing message is put off, before the error queue."
    )
    delayed_retry_increase: Duration = Field(
        timedelta(seconds=10), description="The first delay; each further one is longer by so much."
    )
    retry_interval_limit: Duration = Field(
        timedelta(days=1),
        description="No further delayed retry when the last one was scheduled longer ago than this.",
    )
    retry_age_limit: Duration | None = Field(
        None, description="No further delayed retry for a message sent longer ago than this; unset: any age."
    )
    classify_errors: bool = Field(
        True, description="Spare retries where they can't help (bad bodies, broken code, unique keys)."
    )
    rate_limit_after: int = Field(
        0, ge=0, description="Failures in a row, of all messages, that slow the receiver down; 0: never."
    )
    rate_limit_pause: Duration = Field(
        timedelta(seconds=1), description="Wait before each further message while slowed down."
    )

    @field_validator("visibility_timeout")
    @classmethod
    def _visibility_range(cls, value: timedelta) -> timedelta:
        if not timedelta(seconds=1) <= value <= timedelta(days=7):
            raise ValueError(f"must be from 1 second to 7 days; it is {format_duration(value)}")
        return value

    @field_validator(
        "handler_timeout",
        "stop_grace",
        "delayed_retry_increase",
        "rate_limit_pause",
        "retry_interval_limit",
    )
    @classmethod
    def _span(cls, value: timedelta) -> timedelta:
        if not timedelta(0) <= value <= _YEAR:
            raise ValueError(f"must be from 0 to 366 days; it is {format_duration(value)}")
        return value

    @field_validator("receive_idle_interval")
    @classmethod
    def _idle(cls, value: timedelta) -> timedelta:
        if not timedelta(milliseconds=50) <= value <= timedelta(minutes=1):
            raise ValueError(f"must be from 50 ms to 1 minute; it is {format_duration(value)}")
        return value

    @field_validator("retry_age_limit")
    @classmethod
    def _age(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value <= timedelta(0):
            raise ValueError(f"must be more than zero; it is {format_duration(value)}")
        return value
