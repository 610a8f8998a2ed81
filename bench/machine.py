"""What the benchmark ran on."""

import os
import platform
import subprocess
from typing import Any

import psutil

from bench.hot_calls import processor
from postdate.local.node import azurite_version, find_node

_MEGABYTE = 1 << 20


def machine() -> dict[str, Any]:
    """Processor, memory and system; nothing that names the machine."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": _system(),
    }


def servers() -> dict[str, str]:
    """Versions of the emulator and of what it runs on."""
    node = find_node().binary
    told = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=True)
    return {"azurite": azurite_version(), "node": told.stdout.strip().removeprefix("v")}


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def memory_mb(pid: int) -> float:
    """Resident memory of a process, in MiB."""
    return float(psutil.Process(pid).memory_info().rss) / _MEGABYTE


def _system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.machine()}"
    except OSError:
        return f"{platform.system()} {platform.machine()}"
