"""What the benchmark ran on."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

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


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.machine()}"
    except OSError:
        return f"{platform.system()} {platform.machine()}"
