"""Fixtures that our own tests share; those for users too are in postdate.testing.fixtures."""

import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def golden() -> dict[str, Any]:
    """Rows, envelopes and fault headers as .NET endpoints write them: a copy for each test."""
    parsed: dict[str, Any] = json.loads(
        (HERE / "golden" / "nservicebus-azure.json").read_text(encoding="utf-8")
    )
    return parsed
