"""An error queue in memory with its undo file, and failures on the way."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from engine_cases import open_world
from error_cases import fault_headers, original

from postdate.core.error_selection import Selection
from postdate.engine.error_moves import ErrorMoves, Moved, MoveSettings
from postdate.engine.error_queue import ErrorQueue
from postdate.engine.error_undo import ErrorUndo
from postdate.engine.undo_file import Header, UndoFile, UndoWriter
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, wrap
from postdate.model.message import Message

RETENTION = timedelta(days=30)
BIG = "0a" * 32 + "-" + "1" * 32


@dataclass
class Desk:
    """An error queue and an undo file."""

    world: object
    path: object
    told: list[Moved] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def queue(self):
        return ErrorQueue(self.world.backend, self.world.clock, "error")

    @property
    def outcomes(self):
        return Counter(moved.outcome for moved in self.told)

    async def put(self, *texts):
        for text in texts:
            await self.world.backend.sender.send("error", text)

    async def move(self, did, selection=None, **settings):
        form = settings.pop("envelope_form", lambda _: EnvelopeForm.NSERVICEBUS)
        header = Header(did, "error", "Unit.Tests", self.world.clock.now())
        undo = await UndoWriter.create(self.path, header)
        try:
            async with self.queue.hold(selection or Selection()) as hold:
                moves = ErrorMoves(
                    self.world.backend,
                    self.world.clock,
                    self.queue,
                    undo,
                    MoveSettings(RETENTION, form, **settings),
                )
                work = moves.retry if did == "retry" else moves.discard
                return await work(hold, self.stop, self.told.append)
        finally:
            await undo.close()

    async def undo(self):
        undone = []
        file = UndoFile.read(self.path)
        await ErrorUndo(self.world.backend, self.world.clock, file, "error", RETENTION).run(undone.append)
        return [one.outcome for one in undone]

    def texts(self, queue):
        return [m.text for m in self.world.in_queue(queue)]

    def visible(self, queue):
        return [m.text for m in self.world.in_queue(queue) if m.visible_at <= self.world.clock.now()]


@asynccontextmanager
async def open_desk(folder):
    async with open_world() as world:
        await world.endpoint.setup("invoices")
        yield Desk(world, folder / "undo.jsonl")


def failing(error, method, *, nth=1, before=None):
    """In place of a method: the nth call ends in an error, before it acts or after."""
    calls = 0

    async def call(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls != nth:
            return await method(*arguments, **options)
        if before is None:
            await method(*arguments, **options)
        raise error

    return call


def with_large_body(number, queue="orders"):
    message = original(number)
    return wrap(Message(message.message_id, message.headers | fault_headers(queue) | {h.PAYLOAD: BIG}, b""))


async def put_payload(desk, body=b"big"):
    await desk.world.backend.payloads.put(BIG, body, keep_until=desk.world.clock.now() + timedelta(days=1))
