"""`postdate run`: serve."""

import logging
from contextlib import suppress
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.logs import LogFormat, log_to_stderr
from postdate.cli.signals import stop_signals
from postdate.endpoint import Endpoint
from postdate.errors import PostdateError

_log = logging.getLogger("postdate.run")


@command(prints="nothing; `--log-format json` logs one JSON object per line on stderr")
async def run(
    call: Call,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="POSTDATE_LOG_FORMAT", help="How log lines look.")
    ] = LogFormat.TEXT,
) -> None:
    """Serve until SIGTERM or Ctrl-C: elect a leader, and hand over what is due.

    Start as many as you like; one of them leads. A clean stop finishes what is under way, removes the rows of
    what was handed over and gives the lease back, then ends with exit code 0. A second signal ends at once.
    """
    log_to_stderr(logging.DEBUG if call.verbose else logging.INFO, log_format)
    with stop_signals() as stop:
        async with call.endpoint() as endpoint:
            if not endpoint.settings.disable_delayed_delivery:
                # Better one clear line now than a loop of warnings: is everything there, and may we?
                await endpoint.parts.backend.store.next_due()
                await endpoint.parts.backend.lease.holder()
                _log.info("endpoint %r serves; SIGTERM or Ctrl-C stops it", endpoint.settings.endpoint)
            await _tell_of_error_queue(endpoint)
            await endpoint.run(stop)
        _log.info("stopped")


async def _tell_of_error_queue(endpoint: Endpoint) -> None:
    """Without one, what fails stays where it is: told now, not when the first message fails."""
    queue = endpoint.settings.error_queue
    with suppress(PostdateError):  # whoever may not look may still send to it
        if not await endpoint.parts.backend.sender.exists(queue):
            _log.warning("error queue %r does not exist; create it with `postdate setup`", queue)
