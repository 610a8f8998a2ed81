"""Reading messages and checking them, a chunk ahead of whoever stores them."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from postdate.clock import Clock, wait_for
from postdate.engine.acceptance import Accepted, Outgoing
from postdate.errors import PostdateError, StorageError, UsageError

#: Messages in a chunk, at most: those of one hour meet in full transactions, though due times are spread.
CHUNK_MESSAGES = 5_000
#: Bytes of bodies and headers in a chunk, at most, less those of its last message.
CHUNK_BYTES = 8 * 1024 * 1024
#: A chunk that isn't full is stored after so long, where messages come slowly.
_PATIENCE_SECONDS = 1.0
#: Messages read before others get a turn: checking one takes about 0.1 ms.
_TURN = 50

Messages = Iterable[Outgoing] | AsyncIterable[Outgoing]


@dataclass(slots=True)
class Chunk:
    """Messages that are stored together: each accepted, or why it is refused."""

    #: The index of the first message.
    first: int = 0
    items: list[Accepted | PostdateError] = field(default_factory=list)
    #: Of bodies and headers.
    size: int = 0

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return len(self.items) >= CHUNK_MESSAGES or self.size >= CHUNK_BYTES


class ReadAhead:
    """Chunks of an iterable. At most one is full, or being filled, while the one before is stored."""

    def __init__(
        self, messages: Messages, accept: Callable[[Outgoing], Awaitable[Accepted]], clock: Clock
    ) -> None:
        self._messages = messages
        self._accept = accept
        self._clock = clock
        self._chunk = Chunk()
        self._ended = False
        #: There is a message, or there will be none.
        self._some = asyncio.Event()
        #: There is nothing to wait for.
        self._full = asyncio.Event()
        self._taken = asyncio.Event()

    async def read(self) -> None:
        """Read to the end, or until the service fails; whatever the iterable raises is raised.

        What was read by then is still a chunk.
        """
        try:
            async for outgoing in _each_of(self._messages):
                item = await self._checked(outgoing)
                chunk = self._chunk  # only now: the one before may have been taken meanwhile
                chunk.items.append(item)
                chunk.size += 0 if isinstance(item, PostdateError) else _bytes_of(item)
                self._some.set()
                if isinstance(item, StorageError):
                    return
                if chunk.full:
                    self._taken.clear()
                    self._full.set()
                    await self._taken.wait()
                elif len(chunk.items) % _TURN == 0:
                    await asyncio.sleep(0)
        finally:
            self._ended = True
            self._some.set()
            self._full.set()

    async def next(self) -> Chunk | None:
        """The next chunk, when it is full or there is no point in waiting; None: it was the last."""
        await self._some.wait()
        await wait_for(self._full, _PATIENCE_SECONDS, self._clock)
        chunk = self._chunk
        if not chunk.items:
            return None
        self._chunk = Chunk(chunk.first + len(chunk.items))
        if not self._ended:
            self._some.clear()
            self._full.clear()
        self._taken.set()
        return chunk

    async def _checked(self, outgoing: object) -> Accepted | PostdateError:
        if not isinstance(outgoing, Outgoing):
            return UsageError(f"a message is an Outgoing; this is a {type(outgoing).__name__}")
        try:
            return await self._accept(outgoing)
        except PostdateError as error:
            return error


def _bytes_of(accepted: Accepted) -> int:
    message = accepted.delayed.message
    headers = sum(len(name) + len(value or "") for name, value in message.headers.items())
    return headers + len(message.body) + len(accepted.payload or b"")


async def _each_of(messages: Messages) -> AsyncIterator[Outgoing]:
    if isinstance(messages, AsyncIterable):
        async for outgoing in messages:
            yield outgoing
    else:
        for outgoing in messages:
            yield outgoing
