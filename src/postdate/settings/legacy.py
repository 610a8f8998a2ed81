"""Settings of the legacy timeout manager (nservicebus-azure, sections 4 and 5.1)."""

import re
from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from postdate.errors import UsageError
from postdate.model.date_patterns import partition_scope
from postdate.model.durations import format_duration
from postdate.settings.fields import Duration

_TABLE = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_CONTAINER = re.compile(r"(?=.{3,63}\Z)[a-z0-9](?:-?[a-z0-9])*")


class LegacySettings(BaseModel):
    """Read by the timeout manager and the commands around it."""

    disable_timeout_manager: bool = Field(
        False, description="Switches off the legacy timeout manager: nothing of it is polled or created."
    )
    timeout_table: str = Field(
        "TimeoutDataTableName", description="Table of the legacy timeouts, shared by all endpoints."
    )
    timeout_manager_table: str = Field(
        "TimeoutManagerDataTable", description="Table where legacy timeout managers keep how far they read."
    )
    timeout_state_container: str = Field(
        "timeoutstate", description="Blob container of the legacy timeouts' bodies."
    )
    timeout_partition_scope: str = Field(
        "yyyyMMddHH", description="Date pattern of the legacy time rows' partitions, as the old fleet has it."
    )
    timeout_outage_limit: Duration = Field(
        timedelta(minutes=2), description="Reading legacy timeouts has failed for so long: critical."
    )

    @field_validator("timeout_table", "timeout_manager_table")
    @classmethod
    def _table_name(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError(f"{value!r} is not a table name: 3 to 63 letters and digits, a letter first")
        return value

    @field_validator("timeout_state_container")
    @classmethod
    def _container_name(cls, value: str) -> str:
        if not _CONTAINER.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a container name: 3 to 63 lower-case letters, digits, single inner dashes"
            )
        return value

    @field_validator("timeout_partition_scope")
    @classmethod
    def _scope(cls, value: str) -> str:
        try:
            partition_scope(value)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("timeout_outage_limit")
    @classmethod
    def _outage_window(cls, value: timedelta) -> timedelta:
        if not timedelta(0) < value <= timedelta(days=1):
            raise ValueError(f"must be more than zero, at most a day; it is {format_duration(value)}")
        return value
