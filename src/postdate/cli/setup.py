"""`postdate setup`: create what an endpoint needs."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.errors import ConfigurationError


@command(prints="one object: `created` (list of names; empty if all was there), `table`, `queues`")
async def setup(
    call: Call,
    queue: Annotated[
        list[str] | None, typer.Option(help="A further queue to create; may be repeated.")
    ] = None,
    timeout_manager: Annotated[
        bool,
        typer.Option(
            "--timeout-manager",
            help="Also the tables, container and queues of the legacy timeout manager, for older instances.",
        ),
    ] = False,
    inbox: Annotated[
        bool, typer.Option("--inbox", help="Also create the table of the endpoint's inboxes.")
    ] = False,
) -> None:
    """Create what is missing: delays table, lease container, error queue, own queue and --queue.

    With --inbox also the table of the endpoint's inboxes, which their first use would create too.

    Safe to repeat, and to run in many places at once.
    """
    async with call.endpoint() as endpoint:
        settings = endpoint.settings
        queues = list(queue or [])
        try:
            queues.append(settings.own_queue)
        except ConfigurationError as error:
            call.out.note(f"no own queue: {error}")
        if timeout_manager:
            queues += settings.timeout_queues
        created = await endpoint.setup(*queues, timeout_manager=timeout_manager, inbox=inbox)
    names = sorted({*queues, settings.error_queue})
    if call.out.json:
        no_table = settings.disable_delayed_delivery or settings.store is not None
        table = None if no_table else settings.table_name
        call.out.line({"created": created, "table": table, "queues": names})
        return
    for name in created:
        call.out.text(f"created {name}")
    if not created:
        call.out.text("everything is there already")
