"""Who may say that a term still stands: the elector, or a fence in a process that helps the leader."""

from typing import Protocol


class Authority(Protocol):
    """Asked right before each request of a term leaves."""

    def may_act(self, number: int) -> bool:
        """Whether requests of this very term may leave now. It only looks, so any thread may ask."""
        ...
