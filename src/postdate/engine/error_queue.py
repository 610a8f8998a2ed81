"""What lies in the error queue: looked at without loss, and held while something is done with it.

A storage queue shows 32 messages to those who only peek. To see all, every message is received, hidden for
`HOLD_SECONDS`, and made visible again at the end, also when the look is cut short: what even a killed process
hid shows up by itself after that time. Each look counts as a receive in the dequeue count, which no one who
reads an error queue goes by.

Whoever else works on the queue finds less in it meanwhile, and we find what they left. A receipt of ours is
good until somebody else receives the message, even after it became visible again; so a message that is taken
from under us is noticed when we touch it, and is left to them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from tempfile import SpooledTemporaryFile

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.core.error_selection import Selection
from postdate.engine.destinations import Destinations
from postdate.engine.tasks import to_the_end
from postdate.errors import DestinationNotFound, PostdateError, StorageUnreachable
from postdate.model.failed import FailedMessage, failed_message
from postdate.model.limits import RECEIVE_MESSAGES
from postdate.ports import Backend, Received

#: How long a message that was looked at stays hidden, if nobody makes it visible before.
HOLD_SECONDS = 60
#: What is to be moved is hidden for at least so long before.
_ENOUGH = timedelta(seconds=HOLD_SECONDS / 2)
#: Messages that are made visible again at once.
_AT_ONCE = 16
#: Bytes of texts that are kept in memory; more are kept in a temporary file that has no name.
_MEMORY_BYTES = 16 * 1024 * 1024

OnSeen = Callable[[FailedMessage, str], object]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen."""

    #: Those that were meant, in the order of the queue.
    messages: list[FailedMessage]
    #: About so many more are hidden, because somebody else works on the queue.
    hidden: int
    #: False: it ended at the limit, and there may be more.
    complete: bool


@dataclass(slots=True)
class Held:
    """A message that this process hides from others."""

    message: FailedMessage
    #: Without its text.
    received: Received
    #: First byte and length of its text, among those held.
    place: tuple[int, int]


@dataclass(slots=True)
class Hold:
    """Messages that are held, and what was seen beside them."""

    held: list[Held] = field(default_factory=list)
    hidden: int = 0
    #: Large bodies that messages beside those held refer to.
    payloads_of_others: Counter[str] = field(default_factory=Counter)
    #: Native ids of messages that are gone from the queue: not made visible again.
    done: set[str] = field(default_factory=set)
    _texts: "SpooledTemporaryFile[bytes]" = field(
        default_factory=lambda: SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - see `close`
    )

    def add(self, message: FailedMessage, received: Received) -> None:
        """Hold one; its text goes where it takes no memory."""
        content = received.text.encode("utf-8", "surrogatepass")
        start = self._texts.seek(0, 2)
        self._texts.write(content)
        self.held.append(Held(message, replace(received, text=""), (start, len(content))))

    def text_of(self, one: Held) -> str:
        """The text of the queue message."""
        start, length = one.place
        self._texts.seek(start)
        return self._texts.read(length).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Forget the texts."""
        self._texts.close()


class ErrorQueue:
    """One error queue."""

    def __init__(self, backend: Backend, clock: Clock, queue: str) -> None:
        self._backend = backend
        self._clock = clock
        #: Its address.
        self.queue = queue

    async def look(
        self, selection: Selection, *, limit: int | None = None, on_seen: OnSeen | None = None
    ) -> Look:
        """See messages; all are visible again afterwards, although the look may be cut short.

        Args:
            selection: which ones.
            limit: end after so many; None: see all.
            on_seen: told of each one that is meant, with its text.

        Raises:
            DestinationNotFound: the error queue does not exist.
            StorageError: the service failed.
        """
        messages: list[FailedMessage] = []

        def see(message: FailedMessage, received: Received) -> bool:
            if selection.takes(message, received.text):
                messages.append(message)
                if on_seen is not None:
                    on_seen(message, received.text)
            return limit is None or len(messages) < limit

        taken: dict[str, Received] = {}
        try:
            complete = await self._take(taken, see)
            hidden = await self._hidden(taken) if complete else 0
        finally:
            await self._give_back(taken, set())
        return Look(messages, hidden, complete)

    @asynccontextmanager
    async def hold(self, selection: Selection, *, until_found: bool = False) -> AsyncIterator[Hold]:
        """Hold messages for what is done inside; those that are not `done` then are visible again.

        The messages beside them are visible again before anything is done.

        Args:
            selection: which ones.
            until_found: go no further when there is one for each of the selected ids.

        Raises:
            DestinationNotFound: the error queue does not exist.
            StorageError: the service failed.
        """
        hold = Hold()
        taken: dict[str, Received] = {}
        wanted = set(selection.ids)

        def see(message: FailedMessage, received: Received) -> bool:
            if selection.takes(message, received.text):
                hold.add(message, received)
                wanted.difference_update((message.message_id, message.native_id))
            elif message.payload is not None:
                hold.payloads_of_others[message.payload] += 1
            return bool(wanted) or not until_found

        try:
            if await self._take(taken, see):
                hold.hidden = await self._hidden(taken)
            for one in hold.held:  # a long walk may have come round, and received it once more
                one.received = taken.pop(one.received.native_id)
            await self._give_back(taken, set())
            taken = {}
            yield hold
        finally:
            taken = {one.received.native_id: one.received for one in hold.held} | taken
            await self._give_back(taken, hold.done)
            hold.close()

    async def keep(self, one: Held) -> bool:
        """Make sure that it stays hidden for a while; False: somebody else received it."""
        if one.received.hidden_until - self._clock.now() >= _ENOUGH:
            return True
        # Somebody else may have given it an expiry, and a queue hides nothing past that.
        left = one.received.seconds_left(self._clock.latest())
        again = await self._backend.receiver.extend(one.received, max(0, int(min(HOLD_SECONDS, left))))
        if again is None:
            return False
        one.received = again
        return True

    async def _take(self, taken: dict[str, Received], see: Callable[[FailedMessage, Received], bool]) -> bool:
        """Receive page by page; True: the end was reached, False: `see` has enough."""
        while True:
            page = await self._page()
            news = [received for received in page if received.native_id not in taken]
            # A message that came round, as a long walk lets it, is visible again by its last receipt only.
            taken.update({received.native_id: replace(received, text="") for received in page})
            if not news:
                return True
            for received in news:
                message = failed_message(
                    received.text, received.native_id, received.inserted_at, received.dequeue_count
                )
                if not see(message, received):
                    return False

    async def _page(self) -> list[Received]:
        try:
            return await self._backend.receiver.receive(
                self.queue, count=RECEIVE_MESSAGES, visibility_s=HOLD_SECONDS
            )
        except DestinationNotFound:
            # Says the same, with near names.
            await Destinations(self._backend.sender, self._clock).check(self.queue)
            raise

    async def _hidden(self, taken: dict[str, Received]) -> int:
        return max(0, await self._backend.sender.approximate_count(self.queue) - len(taken))

    async def _give_back(self, taken: dict[str, Received], done: set[str]) -> None:
        """Make messages visible again, although the caller may be cancelled meanwhile.

        What can't be made visible shows up by itself, at most `HOLD_SECONDS` after it was received.
        """
        gone = False

        async def give_back(received: Received) -> None:
            nonlocal gone
            if gone or received.hidden_until <= self._clock.now():
                return
            try:
                await self._backend.receiver.nack(received)
            except StorageUnreachable:
                gone = True
            except PostdateError:
                return

        async def all_of_them() -> None:
            left = [received for received in taken.values() if received.native_id not in done]
            await for_each(left, _AT_ONCE, give_back)

        await to_the_end(asyncio.ensure_future(all_of_them()))
