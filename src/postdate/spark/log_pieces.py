"""Pieces of the delivery log's files, so that tasks of about even size read each line once. Pure.

A piece may begin and end anywhere in a file: a line belongs to the piece in which it begins.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

#: The bytes of a file from one offset to before another.
Read = Callable[[str, int, int], Awaitable[bytes]]
#: Bytes that are read at once.
CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a file that begin at `start` or behind, and before `end`; the file is read up to `length`."""

    name: str
    start: int
    end: int
    length: int


def cut(spans: Iterable[tuple[str, int, int]], size: int) -> Iterator[list[Piece]]:
    """Parts of about `size` bytes that hold all spans (name, start, end), small ones together.

    Spans begin and end where lines do.
    """
    part, held = list[Piece](), 0
    for name, first, last in spans:
        start = first
        while start < last:
            end = min(last, start + size - held)
            part.append(Piece(name, start, end, last))
            held += end - start
            start = end
            if held >= size:
                yield part
                part, held = [], 0
    if part:
        yield part


async def lines_in(piece: Piece, read: Read, chunk: int = CHUNK_BYTES) -> AsyncIterator[list[bytes]]:
    """The lines of a piece, without their ends, a chunk at a time.

    What the last writer left without an end is no line.
    """
    # From the byte before: if that ends a line, another one begins at `start`.
    at = base = max(0, piece.start - 1)
    behind_first = piece.start > 0
    data = b""
    while at < piece.length:
        end = min(at + chunk, piece.length)
        data += await read(piece.name, at, end)
        at = end
        if behind_first:
            skipped = data.find(b"\n") + 1
            if not skipped:
                base, data = at, b""
                continue
            base, data, behind_first = base + skipped, data[skipped:], False
        if base >= piece.end:
            return
        # The line that begins before the end is the last one: up to the first line end from there on.
        last = data.find(b"\n", max(0, piece.end - 1 - base))
        whole = (last if last >= 0 else data.rfind(b"\n")) + 1
        if whole:
            yield data[: whole - 1].split(b"\n")
        base, data = base + whole, data[whole:]
        if last >= 0:
            return
