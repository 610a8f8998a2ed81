"""A message that comes back from the error queue is as new to its receiver: all its attempts, from the first on."""

import asyncio
from datetime import timedelta

from receiver_cases import QUEUE, always_failing, open_scene

from postdate.core.error_selection import Selection
from postdate.engine.error_moves import ErrorMoves, MoveSettings, Outcome
from postdate.engine.error_queue import ErrorQueue
from postdate.engine.undo_file import Header, UndoWriter
from postdate.model import headers as h
from postdate.model.returning import is_of_failure

RETRIES = {"immediate_retries": 1, "delayed_retries": 2}
ATTEMPTS = 6
#: Longer than all delayed retries take.
LONG = 120


async def retry(scene, path):
    told = []
    async with scene.endpoint() as endpoint:
        parts, settings = endpoint.parts, endpoint.settings
        queue = ErrorQueue(parts.backend, parts.clock, settings.error_queue)
        undo = await UndoWriter.create(path, Header("retry", queue.queue, "Orders", parts.clock.now()))
        moves = ErrorMoves(
            parts.backend,
            parts.clock,
            queue,
            undo,
            MoveSettings(settings.payload_retention, settings.envelope_form),
        )
        async with queue.hold(Selection()) as hold:
            await moves.retry(hold, asyncio.Event(), told.append)
        await undo.close()
    return [(moved.outcome, moved.destination) for moved in told]


async def test_after_two_days_in_the_error_queue_a_message_has_its_full_budget_again(tmp_path):
    async with open_scene() as scene:
        calls = []
        await scene.put(**{h.DELIVER_AT: h.format_instant(scene.clock.now()), "Contoso.Note": "kept"})
        await scene.run_for(
            always_failing(scene.endpoint(**RETRIES), RuntimeError("no"), calls), seconds=LONG
        )
        assert [attempt for _, attempt, _ in calls] == list(range(1, ATTEMPTS + 1))
        (failed,) = scene.messages()
        assert failed.headers[h.FAILED_QUEUE] == QUEUE

        await scene.clock.advance(timedelta(days=2))
        assert await retry(scene, tmp_path / "one") == [(Outcome.RETRIED, QUEUE)]
        (returned,) = scene.messages(QUEUE)
        assert returned.message_id == failed.message_id
        assert returned.headers["Contoso.Note"] == "kept"
        assert not any(map(is_of_failure, returned.headers))

        again = []
        await scene.run_for(
            always_failing(scene.endpoint(**RETRIES), RuntimeError("no"), again), seconds=LONG
        )
        assert [attempt for _, attempt, _ in again] == list(range(1, ATTEMPTS + 1))
        (failed,) = scene.messages()
        assert failed.headers[h.ATTEMPTS] == str(ATTEMPTS)
