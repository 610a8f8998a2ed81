"""A question asked right before a request leaves."""

from collections.abc import Callable

#: Asked as late as a backend can, right before the request leaves; False stops it with `LeaseLost`.
#: It only looks, so any thread may ask.
Guard = Callable[[], bool]


class LeaseLost(Exception):
    """The guard said no: nothing was sent."""
