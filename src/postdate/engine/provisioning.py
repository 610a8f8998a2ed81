"""Creating what an endpoint needs."""

from collections.abc import Sequence
from contextlib import suppress

from postdate.errors import ConfigurationError
from postdate.ports import Backend
from postdate.settings import Settings


async def create_missing(
    settings: Settings, backend: Backend, queues: Sequence[str], *, timeout_manager: bool, inbox: bool
) -> list[str]:
    """Create what is missing: delays table, lease container, error queue, own queue and `queues`.

    Store and queues of the legacy timeout manager, and the table of the inboxes, only if asked for.
    Returns the names of what this call created.

    Raises:
        ConfigurationError: the timeout manager is asked for, and switched off.
    """
    if timeout_manager and settings.disable_timeout_manager:
        raise ConfigurationError(
            "places of the legacy timeout manager are asked for, and it is switched off: unset "
            "POSTDATE_DISABLE_TIMEOUT_MANAGER, or set up without them"
        )
    wanted = [*queues, settings.error_queue]
    created: list[str] = []
    if not settings.disable_delayed_delivery:
        if await backend.store.create():
            own = backend.description.get("store")
            created.append(f"table {settings.table_name}" if own is None else f"store {own}")
        if await backend.lease.create():
            created.append(f"container {settings.table_name}")
    if timeout_manager:
        created += await backend.timeouts.create()
        wanted += settings.timeout_queues
    if inbox and await backend.inbox.create():
        created.append(f"table {settings.inbox_table_name}")
    with suppress(ConfigurationError):
        wanted.append(settings.own_queue)
    created += [f"queue {queue}" for queue in dict.fromkeys(wanted) if await backend.sender.create(queue)]
    return created
