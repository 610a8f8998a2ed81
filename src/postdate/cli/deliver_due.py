"""`postdate deliver-due`: one pass."""

from postdate.cli.command import Call, command


@command(
    prints="one object: `led` (false: another process leads, nothing was done), `handed_over`, `failed`, "
    "`moved_to_error_queue`, `waiting`, `next_at`"
)
async def deliver_due(call: Call) -> None:
    """Hand over what is due, once, if no other process leads. For timers and cron."""
    async with call.endpoint() as endpoint:
        result = await endpoint.deliver_due()
    call.out.record(
        {
            "led": result.led,
            "handed_over": result.handed_over,
            "failed": result.failed,
            "moved_to_error_queue": result.moved_to_error_queue,
            "waiting": result.waiting,
            "next_at": result.next_at,
        }
    )
    if not result.led:
        call.out.note("another process leads; it hands over what is due")
