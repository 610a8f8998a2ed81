"""`postdate schedule`: a message for later."""

from postdate.cli.bodies import (
    Body,
    BodyFile,
    Destination,
    ExpiresAfter,
    HeaderOptions,
    JsonBody,
    MessageId,
    read_body,
    read_headers,
)
from postdate.cli.command import Call, command
from postdate.cli.times import At, Delay, one_of
from postdate.events import Event, Scheduled


@command(
    prints="one object: `handle`, `due_at`, `message_id`, `destination`, `path` (`row`, `queue` or `now`)"
)
async def schedule(
    call: Call,
    destination: Destination,
    body: Body = None,
    delay: Delay = None,
    at: At = None,
    body_file: BodyFile = None,
    json_body: JsonBody = False,
    header: HeaderOptions = None,
    message_id: MessageId = None,
    expires_after: ExpiresAfter = None,
) -> None:
    """Deliver a message when it is due, at least once.

    It is durable when its handle is printed; the handle can cancel or move it.
    """
    due = one_of(delay, at)
    content = read_body(body, body_file)
    headers = read_headers(header, content, json_body=json_body)
    heard: list[Scheduled] = []

    def listen(event: Event) -> None:
        if isinstance(event, Scheduled):
            heard.append(event)

    async with call.endpoint(listen) as endpoint:
        handle = await endpoint.schedule(
            destination,
            content,
            delay=due.delay,
            at=due.at,
            headers=headers,
            message_id=message_id,
            expires_after=expires_after,
        )
    scheduled = heard[0] if heard else None
    call.out.record(
        {
            "handle": handle,
            "due_at": scheduled.due_at if scheduled else due.at,
            "message_id": scheduled.message_id if scheduled else message_id,
            "destination": destination,
            "path": scheduled.path if scheduled else None,
        }
    )
