"""Where a run happens: a storage account with nothing in it that another run left."""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from azure.core.exceptions import AzureError
from pydantic import SecretStr

from postdate.bench.account import Account
from postdate.local import Azurite
from postdate.settings import BackendName, Settings

#: All that the benchmark makes in an account is named so, with 12 random digits behind it.
PREFIX = "postdatebench"
#: The account of the real consumer; receiving scans all messages of an account, where that is Azurite.
CONSUMER = "consumer"
_CLEAN_SECONDS = 60.0

#: Processor seconds of a process, by its id.
CpuOf = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Ground:
    """One run's account, endpoint and queue; table, container and queues are there."""

    settings: Settings
    queue: str
    #: The service's process; None where it is none of this machine.
    server_pid: int | None = None
    cpu_of: CpuOf | None = None

    def server_cpu(self) -> float:
        """Processor seconds that the service has taken so far; NaN where that can't be told."""
        if self.server_pid is None or self.cpu_of is None:
            return math.nan
        return self.cpu_of(self.server_pid)

    def with_settings(self, **changes: Any) -> Settings:
        """The endpoint's settings with some changed."""
        return self.settings.model_copy(update=changes)


class Grounds(Protocol):
    """Gives each run its ground."""

    def fresh(self, *, consumer: bool = False) -> AbstractAsyncContextManager[Ground]:
        """A ground for one run; what the run leaves is removed at the end.

        Args:
            consumer: with a queue of the same name in a second account, `queue@consumer`.
        """
        ...


class LocalGrounds:
    """An Azurite of its own for each run, on disk."""

    def __init__(self, cpu_of: CpuOf | None = None) -> None:
        self._cpu_of = cpu_of

    @asynccontextmanager
    async def fresh(self, *, consumer: bool = False) -> AsyncIterator[Ground]:
        """Start one, and remove it with all it holds."""
        async with Azurite(accounts=(CONSUMER,) if consumer else ()) as azurite:
            aliases = {CONSUMER: SecretStr(azurite.connection_string_for(CONSUMER))} if consumer else {}
            settings = plain_settings(
                connection=SecretStr(azurite.connection_string), aliases=aliases, **_names()
            )
            queue = f"{settings.endpoint}-in"
            ground = Ground(settings, queue, azurite.pid, self._cpu_of)
            async with Account(settings) as account:
                await account.provision(ground.queue, settings.error_queue)
                if consumer:
                    await account.provision_alias(CONSUMER, ground.queue)
            yield ground


class AccountGrounds:
    """The user's own account; names are new for each run, and removed at its end, whatever ends it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @asynccontextmanager
    async def fresh(self, *, consumer: bool = False) -> AsyncIterator[Ground]:  # noqa: ARG002 - there is no second account
        """Make table, container and queues, and delete them."""
        # Not in a store of the user's own: what was made there could not be deleted.
        settings = self._settings.model_copy(
            update={**_names(), "queue": None, "store": None, "disable_delayed_delivery": False}
        )
        queue = f"{settings.endpoint}-in"
        async with Account(settings) as account:
            try:
                await account.provision(queue, settings.error_queue)
                yield Ground(settings, queue)
            finally:
                await _to_the_end(account.remove(queue, settings.error_queue))


def plain_settings(**values: Any) -> Settings:
    """Defaults and `values`; neither the environment nor a settings file has a say."""
    defaults = {
        name: setting.get_default(call_default_factory=True)
        for name, setting in Settings.model_fields.items()
    }
    return Settings(**(defaults | {"backend": BackendName.AZURE_STORAGE} | values))


def quick(settings: Settings) -> Settings:
    """Shorter times, so that a quick run has rows without waiting minutes."""
    shorter = {"lookahead": 2, "direct_within": 4, "idle_interval": 1}
    return settings.model_copy(update={name: timedelta(seconds=seconds) for name, seconds in shorter.items()})


def _names() -> dict[str, str]:
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
    return {"endpoint": name, "delays_table": name, "error_queue": f"{name}-error"}


async def _to_the_end(work: Any) -> None:
    """Clean up also while we are being cancelled; what can't be removed is left, after a minute."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            async with asyncio.timeout(_CLEAN_SECONDS):
                await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except TimeoutError:
            task.cancel()
    with suppress(AzureError, asyncio.CancelledError):
        await task
    if cancelled is not None:
        raise cancelled
