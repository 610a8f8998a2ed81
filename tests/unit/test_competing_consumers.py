"""Several consumers of one queue: attempts are counted in the message and by the service, by nobody's memory."""

from contextlib import AsyncExitStack

import pytest
from receiver_cases import open_scene, serving_open
from test_recoverability import PAIRS

from postdate.events import MessageFailed
from postdate.model import headers as h


class Turns:
    """Consumers of which none gets a message twice in a row, where there are others."""

    def __init__(self):
        #: Who made each attempt, and which one it was.
        self.attempts = []

    def add(self, endpoint, number, *, alone):
        receiver = endpoint.parts.backend.receiver
        receive = receiver.receive

        async def in_turn(*arguments, **options):
            if not alone and self.attempts and self.attempts[-1][0] == number:
                return []
            return await receive(*arguments, **options)

        receiver.receive = in_turn

        @endpoint.handler
        async def fail(body: bytes, context) -> None:
            del body
            self.attempts.append((number, context.attempt))
            raise RuntimeError("no")


@pytest.mark.parametrize(("immediate", "delayed", "attempts"), PAIRS)
@pytest.mark.parametrize("consumers", [1, 3])
async def test_attempts_are_exact_however_many_consumers_there_are(immediate, delayed, attempts, consumers):
    async with open_scene() as scene, AsyncExitStack() as stack:
        turns, endpoints = Turns(), []
        for number in range(consumers):
            endpoint = scene.endpoint(immediate_retries=immediate, delayed_retries=delayed)
            endpoints.append(await stack.enter_async_context(endpoint))
            turns.add(endpoint, number, alone=consumers == 1)
        await scene.put()
        async with serving_open(*endpoints):
            await scene.clock.advance(5 * delayed * (delayed + 1) + 60)
        assert [attempt for _, attempt in turns.attempts] == list(range(1, attempts + 1))
        assert len({number for number, _ in turns.attempts}) >= min(2, attempts, consumers)
        (failed,) = scene.log.of(MessageFailed)
        assert (failed.attempts, failed.error_queue) == (attempts, "error")
        assert scene.in_queue() == []
        (copy,) = scene.messages()
        assert copy.message_id == "m1"
        assert copy.headers[h.ATTEMPTS] == str(attempts)
        assert not set(h.RETRY_HEADERS) & set(copy.headers)
