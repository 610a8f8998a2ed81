"""The setting that names a delayed store of the user's own."""

import re

from pydantic import BaseModel, Field, field_validator

from postdate.errors import shown

_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class StoreSettings(BaseModel):
    """Read where an endpoint is opened."""

    store: str | None = Field(
        None, description="Delayed store of your own in place of the table, as module:factory."
    )

    @field_validator("store")
    @classmethod
    def _reference(cls, value: str | None) -> str | None:
        if value is not None and not _REFERENCE.fullmatch(value):
            raise ValueError(f"must be module:factory, like shop.delays:open_store; it is {shown(value)}")
        return value
