"""A consumer that dies at a given step: `python receiver_program.py SETTINGS STEP`, both as JSON and name.

It handles messages of its endpoint's queue: one that says "fail" fails; any other sends two messages to the
queue `effects-<queue>`. At its step it kills itself with SIGKILL; with the step `never` it works until SIGTERM, and
with `blocks` it blocks its event loop over the message "block".
It prints `ready` when it serves.
"""

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

from postdate import Endpoint, MessageContext, load_settings
from postdate.model.envelope import unwrap

#: Where it can die; each is before or after one call that changes something.
STEPS = (
    "taken",
    "in_handler",
    "prolonged",
    "handled",
    "first_sent",
    "all_sent",
    "acknowledged",
    "failed",
    "put_back",
    "put_off",
    "moving",
    "moved",
    "moved_away",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def effects(queue: str) -> str:
    return f"effects-{queue}"[:63]


def body_of(text: str) -> bytes:
    return unwrap(text, "").message.body


class Killing:
    """Wraps what the receiver calls, so that the process dies right after the step."""

    def __init__(self, endpoint: Endpoint, step: str) -> None:
        self.step = step
        backend: Any = endpoint.parts.backend
        self._error_queue = endpoint.settings.error_queue
        self._receive, self._ack = backend.receiver.receive, backend.receiver.ack
        self._nack, self._extend = backend.receiver.nack, backend.receiver.extend
        self._send = backend.sender.send
        backend.receiver.receive, backend.receiver.ack = self.receive, self.ack
        backend.receiver.nack, backend.receiver.extend = self.nack, self.extend
        backend.sender.send = self.send

    async def receive(self, queue: str, **options: Any) -> Any:
        page = await self._receive(queue, **options)
        if page and self.step == "taken":
            die()
        return page

    async def ack(self, received: Any) -> Any:
        done = await self._ack(received)
        if self.step == ("moved_away" if body_of(received.text) == b"fail" else "acknowledged"):
            die()
        return done

    async def extend(self, received: Any, visibility_s: int) -> Any:
        again = await self._extend(received, visibility_s)
        if self.step == "prolonged":
            die()
        return again

    async def nack(self, received: Any, delay_s: int = 0, **options: Any) -> Any:
        if self.step == "failed":
            die()
        done = await self._nack(received, delay_s, **options)
        if self.step == ("put_off" if options.get("text") else "put_back"):
            die()
        return done

    async def send(self, destination: str, text: str, **options: Any) -> Any:
        is_failure = destination == self._error_queue
        if self.step == ("moving" if is_failure else "handled"):
            die()
        receipt = await self._send(destination, text, **options)
        sent = "moved" if is_failure else "all_sent" if body_of(text).endswith(b" 2") else "first_sent"
        if self.step == sent:
            die()
        return receipt


async def main(settings: dict[str, Any], step: str) -> None:
    endpoint = Endpoint(load_settings(**settings))

    @endpoint.handler
    async def handle(body: str, context: MessageContext) -> None:
        if step == "in_handler":
            die()
        if step == "prolonged":
            await asyncio.Event().wait()
        if step == "blocks" and body == "block":
            print("blocking", flush=True)
            time.sleep(12)  # what an async handler must not do
        if body == "fail":
            raise RuntimeError("as asked")
        context.send(effects(endpoint.settings.own_queue), f"{body} 1")
        context.send(effects(endpoint.settings.own_queue), f"{body} 2")

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with endpoint:
        Killing(endpoint, step)
        print("ready", flush=True)
        await endpoint.run(stop)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2]))
