"""Fixtures that our own tests share; those for users too are in postdate.testing.fixtures."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

# Where tests run side by side, their processes ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def golden() -> dict[str, Any]:
    """Rows, envelopes and fault headers as .NET endpoints write them: a copy for each test."""
    parsed: dict[str, Any] = json.loads(
        (HERE / "golden" / "nservicebus-azure.json").read_text(encoding="utf-8")
    )
    return parsed
