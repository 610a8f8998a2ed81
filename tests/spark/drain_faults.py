"""Settings for a driver and its tasks, whose first task fails in the middle.

The file that `DRAIN_CONTROL` names tells, as JSON, the file of settings (`file`) and another one (`fault`): the
process that deletes that one fails.
"""

import json
from pathlib import Path

from pyspark import TaskContext

from postdate.settings import Settings, load_settings, settings_file, variable
from postdate.spark.draining.fence import Fence

_PROOFS_BEFORE = 6


def settings() -> Settings:
    """The settings; in a task, a proof may fail from now on."""
    control = json.loads(Path(str(variable("DRAIN_CONTROL"))).read_text(encoding="utf-8"))
    if TaskContext.get() is not None:
        _break(Path(control["fault"]))
    return load_settings(**settings_file(control["file"]))


def _break(marker: Path) -> None:
    prove, asked = Fence.prove, 0

    async def proving(self: Fence) -> bool:
        nonlocal asked
        asked += 1
        if asked == _PROOFS_BEFORE:
            try:
                marker.unlink()
            except FileNotFoundError:
                return await prove(self)
            raise RuntimeError("injected")
        return await prove(self)

    Fence.prove = proving  # type: ignore[method-assign]
