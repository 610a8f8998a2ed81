"""What a user would pick instead of Postdate, under the same workloads on this machine."""

from collections.abc import Callable, Collection
from importlib.util import find_spec

from postdate.bench.figures import Figures
from postdate.bench.scale import Scale
from postdate.errors import PostdateError

#: Names on the command line, and in figures.
PEERS = ("celery", "dramatiq", "procrastinate", "apscheduler")

_MODULES = (*PEERS, "psycopg", "redis", "sqlalchemy", "psutil")


async def run_peers(scale: Scale, say: Callable[[str], None], only: Collection[str] = ()) -> list[Figures]:
    """Measure the peers, or those in `only`; progress goes to `say`, a line at a time.

    A peer that fails does not stop the others: look at each one's `failures`, and fail in the end.

    Raises:
        PostdateError: their packages are not installed.
    """
    missing = [module for module in _MODULES if find_spec(module) is None]
    if missing:
        raise PostdateError(f"not installed: {', '.join(missing)}; `make bench` installs them")
    from bench.peers.run import measure_all  # noqa: PLC0415 - needs what was looked for above

    return await measure_all(scale, say, only)
