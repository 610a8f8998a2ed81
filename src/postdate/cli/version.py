"""`postdate version`."""

import platform
from importlib.metadata import PackageNotFoundError, version

from postdate.cli.command import Call, command

_PACKAGES = (
    "azure-core",
    "azure-data-tables",
    "azure-storage-queue",
    "azure-storage-blob",
    "azure-identity",
    "aiohttp",
)


@command(
    name="version",
    prints="one object: `postdate`, `python`, `platform`, and one key per cloud package",
    show=(),
)
def show_version(call: Call) -> None:
    """Show the versions of Postdate, Python and the cloud packages."""
    call.out.record(
        {
            "postdate": _version("postdate"),
            "python": platform.python_version(),
            "platform": platform.platform(terse=True),
            **{package: _version(package) for package in _PACKAGES},
        }
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
