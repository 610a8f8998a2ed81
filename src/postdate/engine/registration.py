"""Registering handlers, as decorators of the endpoint."""

import inspect
from collections.abc import Iterable
from typing import Any

from postdate.engine.handlers import Handlers


class Registration:
    """What has handlers."""

    def __init__(self) -> None:
        self._handlers = Handlers()

    def handler(self, wanted: Any = None, *, names: Iterable[str] = ()) -> Any:
        """Register a function for messages of the endpoint's own queue, as a decorator.

            @endpoint.handler
            async def place(order: PlaceOrder, context: MessageContext) -> None: ...

        A plain function runs in a thread, where it may block.

        Args:
            wanted: the type of body, if not that of the first parameter's annotation: a pydantic model, a
                dataclass, bytes, str, or dict for any JSON.
            names: further names of that type, as .NET senders give them.

        Raises:
            ConfigurationError: it can't be called like that, or another handler takes the same messages.
        """
        return self._register(wanted, names, timeouts=False)

    def timeout_handler(self, wanted: Any = None, *, names: Iterable[str] = ()) -> Any:
        """Register a function for timeouts that sagas asked for (`context.request_timeout`); as `handler`."""
        return self._register(wanted, names, timeouts=True)

    def is_handler(self, function: Any) -> bool:
        """Whether this very function is registered, for messages or for timeouts."""
        return self._handlers.holds(function)

    def _register(self, wanted: Any, names: Iterable[str], *, timeouts: bool) -> Any:
        if inspect.isroutine(wanted):  # without parentheses
            self._handlers.add(wanted, None, names, timeouts=timeouts)
            return wanted

        def register(function: Any) -> Any:
            self._handlers.add(function, wanted, names, timeouts=timeouts)
            return function

        return register
