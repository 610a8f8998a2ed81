"""Messages that are done with and could not be deleted: the next time they come, they go unseen."""

from collections import OrderedDict

_REMEMBERED = 1_000


class Finished:
    """Native ids of the last thousand of them (as ASQ keeps, nservicebus-azure 2.4)."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, native_id: str) -> None:
        """Remember one; the oldest is forgotten."""
        self._ids[native_id] = None
        self._ids.move_to_end(native_id)
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)

    def __contains__(self, native_id: object) -> bool:
        return native_id in self._ids

    def discard(self, native_id: str) -> None:
        """It is gone for good."""
        self._ids.pop(native_id, None)
