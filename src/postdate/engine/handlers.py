"""Who handles what: functions, the types that they take, and how a message finds its handler.

A message finds the handler whose type, or one of whose names, stands in its
`NServiceBus.EnclosedMessageTypes`, most concrete first: in full, or else by the class name alone where that
is one handler only, so that `Contoso.Messages.PlaceOrder` of a .NET sender finds Python's `PlaceOrder`. What
finds none goes to the handler of any type (bytes, str, dict, no annotation), if there is one; and a message
that names no type goes to the only handler there is.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from postdate.engine.context import MessageContext
from postdate.errors import ConfigurationError, NoHandler
from postdate.model import headers as h
from postdate.model.headers import Headers
from postdate.model.typed_body import enclosed_types, simple_name, type_name

#: Takes any body.
_ANY = (bytes, str, dict, object, Any)


@dataclass(frozen=True, slots=True)
class Handler:
    """One function with what it takes."""

    function: Callable[..., Any]
    wanted: Any
    names: frozenset[str]
    takes_context: bool
    #: A plain function runs in a thread, where it may block.
    is_async: bool

    @property
    def label(self) -> str:
        """For people."""
        return type_name(self.function)

    @property
    def takes_any(self) -> bool:
        """Whether it takes messages of any type."""
        return not self.names


class Handlers:
    """All handlers of an endpoint."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._timeouts: list[Handler] = []

    def __bool__(self) -> bool:
        return bool(self._handlers or self._timeouts)

    def add(
        self, function: Callable[..., Any], wanted: Any, names: Iterable[str], *, timeouts: bool
    ) -> Handler:
        """Register a function.

        Args:
            function: `(message)` or `(message, context)`; async, or plain to run in a thread.
            wanted: the type of body; None: that of the first parameter's annotation.
            names: further type names that it takes.
            timeouts: it takes the timeouts of sagas, and no other messages.

        Raises:
            ConfigurationError: it can't be called like that, or another handler takes the same messages.
        """
        handler = _inspected(function, wanted, names)
        among = self._timeouts if timeouts else self._handlers
        for other in among:
            if (handler.takes_any and other.takes_any) or handler.names & other.names:
                what = ", ".join(sorted(handler.names & other.names)) or "messages of any type"
                raise ConfigurationError(
                    f"{handler.label} and {other.label} both handle {what}; a message has one handler"
                )
        among.append(handler)
        return handler

    def holds(self, function: Callable[..., Any]) -> bool:
        """Whether this very function is registered."""
        return any(handler.function is function for handler in (*self._handlers, *self._timeouts))

    def find(self, headers: Headers) -> Handler:
        """The handler of a message.

        Raises:
            NoHandler: there is none.
        """
        is_timeout = h.IS_SAGA_TIMEOUT in headers
        among = self._timeouts if is_timeout else self._handlers
        types = enclosed_types(headers.get(h.ENCLOSED_TYPES))
        for name in types:
            found = [handler for handler in among if name in handler.names]
            found = found or [x for x in among if simple_name(name) in {simple_name(n) for n in x.names}]
            if len(found) == 1:
                return found[0]
        fallback = [handler for handler in among if handler.takes_any]
        if not fallback and not types and len(among) == 1:
            fallback = among
        if fallback:
            return fallback[0]
        kind = "timeout handler" if is_timeout else "handler"
        known = ", ".join(sorted(name for handler in among for name in handler.names)) or "none"
        raise NoHandler(
            f"no {kind} takes messages of type {types[0] if types else '(none given)'}; handled are: {known}"
        )


def _inspected(function: Callable[..., Any], wanted: Any, names: Iterable[str]) -> Handler:
    label = type_name(function)
    try:
        parameters = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    required = [p for p in parameters if p.default is p.empty]
    if not parameters or len(required) > 2:
        raise ConfigurationError(f"handler {label} must take (message) or (message, context)")
    if wanted is None:
        try:
            wanted = get_type_hints(function).get(parameters[0].name, Any)
        except NameError as error:
            raise ConfigurationError(
                f"handler {label}: the type of its message can't be found ({error}); "
                "pass the type: @endpoint.handler(PlaceOrder)"
            ) from None
    if isinstance(names, str) or isinstance(wanted, str):
        text = names if isinstance(names, str) else wanted
        raise ConfigurationError(
            f"handler {label}: {text!r} is a text, not a type or a list of names; "
            f"write @endpoint.handler(names=[{text!r}])"
        )
    if wanted is MessageContext:
        raise ConfigurationError(
            f"handler {label} has its context first; it must take (message) or (message, context)"
        )
    given = frozenset(names)
    if wanted not in _ANY:
        given |= {type_name(wanted)}
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"handler {label} holds `yield`, so calling it runs nothing; return instead")
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, to see whether it is async
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    return Handler(function, wanted, given, len(parameters) > 1, is_async)
