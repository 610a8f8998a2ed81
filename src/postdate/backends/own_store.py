"""A delayed store of the user's own in place of the table; lease, queues and large bodies stay as they are.

In code it is passed (`Endpoint(store=...)`) by whoever opened it, who closes it too. POSTDATE_STORE tells the
command line who makes one: `module:factory`, where `factory(settings)` returns an async context manager that
gives the store. It is entered when the endpoint is opened, and left when that is closed.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import cast

from postdate.errors import ConfigurationError, NotProvisioned, PostdateError
from postdate.ports import Backend, DelayedStore, DeliveryLogStore, InboxStore
from postdate.settings import PREFIX, Settings

#: What POSTDATE_STORE names.
StoreFactory = Callable[[Settings], AbstractAsyncContextManager[DelayedStore]]

_METHODS = sorted(name for name in vars(DelayedStore) if not name.startswith("_"))
_VARIABLE = f"{PREFIX}STORE"


class WithOwnStore:
    """`ports.Backend`: all of an account but its table."""

    def __init__(self, account: Backend, store: DelayedStore) -> None:
        self._account = account
        self.store = store
        self.lease = account.lease
        self.sender = account.sender
        self.receiver = account.receiver
        self.payloads = account.payloads
        self.timeouts = account.timeouts
        #: Requests to the account: what the store asks of its own service is not counted.
        self.requests = account.requests

    @property
    def inbox(self) -> InboxStore:
        """The account's, which makes it when it is first asked for."""
        return self._account.inbox

    @property
    def delivery_log(self) -> DeliveryLogStore:
        """The account's: the log lies beside the lease."""
        return self._account.delivery_log

    @property
    def description(self) -> Mapping[str, str]:
        """The account's, with the class of the store in place of the table."""
        kind = type(self.store)
        others = {name: text for name, text in self._account.description.items() if name != "table"}
        return {**others, "store": f"{kind.__module__}.{kind.__qualname__}"}

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """The account's services but the table's, which nobody needs, and the store."""
        answers = {name: error for name, error in (await self._account.reach()).items() if name != "table"}
        return {"store": await self._ask_store(), **answers}

    async def _ask_store(self) -> PostdateError | None:
        try:
            await self.store.next_due()
        except NotProvisioned:
            return None  # an answer all the same
        except PostdateError as error:
            return error
        return None

    async def close(self) -> None:
        """Close the account; the store is closed by whoever opened it."""
        await self._account.close()


@asynccontextmanager
async def with_own_store(
    account: Backend, settings: Settings, store: DelayedStore | None
) -> AsyncIterator[Backend]:
    """The account, with the store that code (`store`) or settings name in place of its table, if any.

    Raises:
        ConfigurationError: what they name is not a store, or can't be made.
    """
    if store is not None:
        yield WithOwnStore(account, _checked(store, "store"))
    elif settings.store is not None:
        async with _opening(settings.store, settings) as made:
            yield WithOwnStore(account, _checked(made, f"{_VARIABLE}={settings.store}"))
    else:
        yield account


def _opening(reference: str, settings: Settings) -> AbstractAsyncContextManager[DelayedStore]:
    """What the factory returns, not entered yet."""
    told = f"{_VARIABLE}={reference}"
    factory = _factory(reference, told)
    try:
        opening: object = factory(settings)
    except PostdateError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{told}: the factory raised {_text(error)}") from error
    if not isinstance(opening, AbstractAsyncContextManager):
        if isinstance(opening, Coroutine):
            opening.close()
        raise ConfigurationError(
            f"{told}: the factory returned {type(opening).__name__}, not an async context manager; decorate "
            "an async generator that yields the store with contextlib.asynccontextmanager"
        )
    return cast("AbstractAsyncContextManager[DelayedStore]", opening)


def _factory(reference: str, told: str) -> StoreFactory:
    module_name, _, name = reference.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{told}: there is no module {error.name!r}; install it, or name its folder in PYTHONPATH"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"{told}: importing {module_name!r} raised {_text(error)}") from error
    factory: object = getattr(module, name, None)
    if not callable(factory):
        found = "is not callable" if hasattr(module, name) else "is not there"
        raise ConfigurationError(f"{told}: {name!r} {found} in module {module_name!r}; name a function of it")
    return cast("StoreFactory", factory)


def _text(error: Exception) -> str:
    """An error for people, without its words where they may quote a connection string or a URL."""
    kind, words = type(error).__name__, str(error)
    return f"{kind}: {words}" if words and "=" not in words and "://" not in words else kind


def _checked(store: DelayedStore, told: str) -> DelayedStore:
    missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
    if missing:
        raise ConfigurationError(
            f"{told}: {type(store).__name__} is not a delayed store: it has no {', '.join(missing)}; see "
            "postdate.ports.DelayedStore"
        )
    return store
