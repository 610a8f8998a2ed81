"""Timeouts of sagas: asked for by a handler, delivered to a timeout handler, with the headers of .NET."""

import uuid
from dataclasses import dataclass

import pytest
from receiver_cases import QUEUE, open_scene, serving

from postdate import MessageContext
from postdate.errors import UsageError
from postdate.events import Handled, MessageFailed
from postdate.model import headers as h
from postdate.model.rowcodec import decode_row, encode_row


@dataclass
class BuyersRemorse:
    order: int


async def test_a_timeout_comes_to_the_timeout_handler_when_it_is_due():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(direct_within="30s"), []

        @endpoint.handler
        async def start(body: bytes, context: MessageContext) -> None:
            del body
            context.request_timeout(120, BuyersRemorse(7))

        @endpoint.timeout_handler
        async def over(state: BuyersRemorse, context: MessageContext) -> None:
            seen.append((state, context.headers[h.SAGA_ID], scene.clock.now()))

        began = scene.clock.now()
        await scene.put(
            **{h.SAGA_ID: "11111111-2222-3333-4444-555555555555", h.SAGA_TYPE: "Contoso.OrderSaga"}
        )
        async with serving(endpoint):
            await scene.clock.advance(10)
            (row,) = rows_of(scene)
            headers = row.message.headers
            assert headers[h.IS_SAGA_TIMEOUT] == "True"
            assert headers[h.SAGA_TYPE] == "Contoso.OrderSaga"
            assert headers[h.ENCLOSED_TYPES].endswith("BuyersRemorse")
            assert headers[h.MESSAGE_INTENT] == "Send"
            assert row.destination == QUEUE
            assert encode_row(row)["Destination"] == QUEUE
            await scene.clock.advance(115)
            await scene.log.wait(Handled, count=2)
        ((state, saga_id, at),) = seen
        assert state == BuyersRemorse(7)
        assert saga_id == "11111111-2222-3333-4444-555555555555"
        assert 120 <= (at - began).total_seconds() <= 123


def rows_of(scene):
    """What waits in the delays table."""
    return [
        decode_row(stored.properties, stored.etag).delayed
        for table in scene.memory.tables.values()
        for stored in table.rows.values()
    ]


async def test_messages_of_a_conversation_share_a_saga_id_that_is_a_guid():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def start(body: bytes, context: MessageContext) -> None:
            context.request_timeout(2, body)

        @endpoint.timeout_handler
        async def over(state: bytes, context: MessageContext) -> None:
            seen.append((state, context.headers[h.SAGA_ID], context.headers[h.SAGA_TYPE]))

        for name, conversation in (("a", "one"), ("b", "one"), ("c", "two")):
            await scene.put(name, name.encode(), **{h.CONVERSATION_ID: conversation})
        await scene.run_for(endpoint, seconds=6)
        ids = {state: saga_id for state, saga_id, _ in seen}
        assert ids[b"a"] == ids[b"b"] != ids[b"c"]
        assert all(uuid.UUID(saga_id) for saga_id in ids.values())
        assert {saga_type for _, _, saga_type in seen} == {"Orders"}


async def test_a_timeout_of_a_dotnet_saga_is_handled_here():
    """As core 8 and later write it: the headers, a JSON state, the type with its assembly."""
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.timeout_handler
        async def over(state: BuyersRemorse, context: MessageContext) -> None:
            seen.append(state)
            context.send(QUEUE + "-out", b"done")

        async with scene.endpoint() as other:
            await other.setup(QUEUE + "-out")
        await scene.put(
            body=b'{"order": 3}',
            **{
                h.IS_SAGA_TIMEOUT: "True",
                h.SAGA_ID: "s",
                h.SAGA_TYPE: "Contoso.Saga, Contoso, Version=1.0.0.0",
                h.ENCLOSED_TYPES: "Contoso.OrderSaga+BuyersRemorse, Contoso, Version=1.0.0.0",
            },
        )
        await scene.run_for(endpoint, seconds=2)
        assert seen == [BuyersRemorse(3)]
        (sent,) = scene.messages(QUEUE + "-out")
        assert sent.headers[h.ORIGINATING_SAGA_ID] == "s"
        assert sent.headers[h.ORIGINATING_SAGA_TYPE] == "Contoso.Saga, Contoso, Version=1.0.0.0"
        assert h.SAGA_ID not in sent.headers


async def test_a_timeout_that_nobody_handles_goes_to_the_error_queue_with_the_reason():
    async with open_scene() as scene:
        endpoint = scene.endpoint()
        endpoint.handler(bytes)(lambda body: None)
        await scene.put(**{h.IS_SAGA_TIMEOUT: "True", h.SAGA_ID: "s"})
        await scene.run_for(endpoint, seconds=2)
        (failed,) = scene.log.of(MessageFailed)
        assert "no timeout handler" in failed.error


async def test_a_timeout_without_a_time_is_refused():
    async with open_scene() as scene:
        endpoint, heard = scene.endpoint(), []

        @endpoint.handler
        async def start(body: bytes, context: MessageContext) -> None:
            with pytest.raises(UsageError) as caught:
                context.request_timeout(state=body)
            heard.append(str(caught.value))

        await scene.put()
        await scene.run_for(endpoint, seconds=2)
        assert "delay" in heard[0]


async def test_a_handler_may_say_whose_timeout_it_is():
    saga_id = "99999999-2222-3333-4444-555555555555"
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def start(body: bytes, context: MessageContext) -> None:
            context.request_timeout(2, body, saga_id=saga_id, saga_type="Contoso.Other")

        @endpoint.timeout_handler
        async def over(state: bytes, context: MessageContext) -> None:
            del state
            seen.append((context.headers[h.SAGA_ID], context.headers[h.SAGA_TYPE]))

        await scene.put(
            **{h.SAGA_ID: "11111111-2222-3333-4444-555555555555", h.SAGA_TYPE: "Contoso.OrderSaga"}
        )
        await scene.run_for(endpoint, seconds=5)
        assert seen == [(saga_id, "Contoso.Other")]
