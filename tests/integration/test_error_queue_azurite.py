"""A large error queue on a real service: seen whole, retried by group, by two at once."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from error_cases import failed, original

from postdate import Endpoint
from postdate.core.error_groups import grouped
from postdate.core.error_selection import Selection
from postdate.engine.error_moves import ErrorMoves, MoveSettings, Outcome
from postdate.engine.error_queue import ErrorQueue
from postdate.engine.undo_file import Header, UndoWriter
from postdate.model.envelope import EnvelopeForm, wrap

MESSAGES = 1000
CAUSES = 5
pytestmark = pytest.mark.slow


@pytest.fixture
async def place(postdate_settings):
    """An endpoint with an error queue of its own that holds many failures; the queue, and where they failed."""
    name = postdate_settings.endpoint[-8:]
    settings = postdate_settings.model_copy(update={"error_queue": f"error-{name}"})
    async with Endpoint(settings) as endpoint:
        await endpoint.setup(f"orders-{name}")
        sender = endpoint.parts.backend.sender
        turns = asyncio.Semaphore(16)

        async def put(number):
            async with turns:
                await sender.send(settings.error_queue, text_of(number, f"orders-{name}"))

        await asyncio.gather(*(put(number) for number in range(MESSAGES)))
        yield endpoint, f"orders-{name}"


def text_of(number, queue):
    return failed(number, queue, error=f"Contoso.Refused{'ABCDE'[number % CAUSES]}", says=f"order {number}")


def queue_of(endpoint):
    parts = endpoint.parts
    return ErrorQueue(parts.backend, parts.clock, endpoint.settings.error_queue)


@asynccontextmanager
async def mover(endpoint, path):
    parts, settings = endpoint.parts, endpoint.settings
    undo = await UndoWriter.create(
        path, Header("retry", settings.error_queue, settings.endpoint, parts.clock.now())
    )
    form = MoveSettings(settings.payload_retention, lambda _: EnvelopeForm.NSERVICEBUS)
    try:
        yield ErrorMoves(parts.backend, parts.clock, queue_of(endpoint), undo, form)
    finally:
        await undo.close()


async def retry(endpoint, path, selection):
    told = []
    async with mover(endpoint, path) as moves, queue_of(endpoint).hold(selection) as hold:
        await moves.retry(hold, asyncio.Event(), told.append)
    return Counter(moved.outcome for moved in told)


async def texts_in(endpoint, queue):
    texts = []
    parts = endpoint.parts
    await ErrorQueue(parts.backend, parts.clock, queue).look(
        Selection(), on_seen=lambda _, text: texts.append(text)
    )
    return sorted(texts)


async def test_all_are_seen_by_cause_and_all_stay_and_a_group_moves_alone(place, tmp_path):
    endpoint, queue = place
    look = await queue_of(endpoint).look(Selection())
    groups = grouped(look.messages)
    assert [group.count for group in groups] == [MESSAGES // CAUSES] * CAUSES
    assert await texts_in(endpoint, endpoint.settings.error_queue) == sorted(
        text_of(n, queue) for n in range(MESSAGES)
    )
    chosen = groups[0]
    numbers = [n for n in range(MESSAGES) if chosen.cause.exception_type.endswith("ABCDE"[n % CAUSES])]
    outcomes = await retry(endpoint, tmp_path / "undo", Selection(group=chosen.key))
    assert outcomes == {Outcome.RETRIED: MESSAGES // CAUSES}
    assert await texts_in(endpoint, queue) == sorted(wrap(original(n)) for n in numbers)
    left = set(range(MESSAGES)) - set(numbers)
    assert await texts_in(endpoint, endpoint.settings.error_queue) == sorted(text_of(n, queue) for n in left)


async def test_two_retries_at_once_move_each_message_once(place, tmp_path):
    endpoint, queue = place
    async with Endpoint(endpoint.settings) as other:
        first, second = await asyncio.gather(
            retry(endpoint, tmp_path / "one", Selection()), retry(other, tmp_path / "two", Selection())
        )
    assert first + second == {Outcome.RETRIED: MESSAGES}
    assert await texts_in(endpoint, queue) == sorted(wrap(original(n)) for n in range(MESSAGES))
    assert await texts_in(endpoint, endpoint.settings.error_queue) == []
