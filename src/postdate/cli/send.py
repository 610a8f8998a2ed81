"""`postdate send`: a message now."""

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


@command(prints="one object: `message_id`, `destination`")
async def send(
    call: Call,
    destination: Destination,
    body: Body = None,
    body_file: BodyFile = None,
    json_body: JsonBody = False,
    header: HeaderOptions = None,
    message_id: MessageId = None,
    expires_after: ExpiresAfter = None,
) -> None:
    """Put a message on its destination now."""
    content = read_body(body, body_file)
    headers = read_headers(header, content, json_body=json_body)
    async with call.endpoint() as endpoint:
        sent = await endpoint.send(
            destination, content, headers=headers, message_id=message_id, expires_after=expires_after
        )
    call.out.record({"message_id": sent, "destination": destination})
