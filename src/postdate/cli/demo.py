"""`postdate demo`: the main job, on a storage service of its own, with a leader that dies in the middle."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED
from postdate.cli.render import note
from postdate.demo.play import Options, Snapshot, play
from postdate.demo.summary import Summary
from postdate.errors import UsageError
from postdate.settings import explain_settings

#: Seconds between two lines where there is no terminal.
_LINE_EVERY = 4.0
_TAKEN = frozenset({"lookahead"})


@command(
    prints="one object: `scheduled`, `delivered`, `cancelled`, `to_error_queue`, `lost`, `early`, "
    "`duplicates`, `takeover_s`, `lateness_p50_s`, `lateness_p99_s`, `lateness_max_s`, `moved`, `too_late`, "
    "`via_row`, `via_queue`, `cancelled_but_arrived`, `redelivered`, `killed_pid`, `handed_over_at_kill`, "
    "`seconds`, "
    "`lookahead_s`, `lease_s`, `problems` (list of text); progress goes to stderr",
    show=_TAKEN,
)
async def demo(
    call: Call,
    messages: Annotated[int, typer.Option(min=10, max=100_000, help="Messages to schedule.")] = 1000,
    seconds: Annotated[
        float, typer.Option(min=10, max=3600, help="Length of the run; delays are a thirtieth to half of it.")
    ] = 60.0,
) -> None:
    """Watch it work: three processes elect a leader, it is killed, and nothing is lost or early.

    Starts Azurite and three `postdate run` processes for one endpoint, and schedules messages with delays
    from 2 to 30 s over the first 20 s; some are cancelled, some are moved, and the queue of one is deleted.
    When half of the rows are handed over, in the middle of a burst, the leader gets SIGKILL. A consumer
    checks each arrival against its due time by the storage service's clock.

    A delay of at most the lookahead (here a third of the run, 20 s) goes straight to the queue, hidden there
    until it is due; a longer one waits in a row, and the leader hands it over that long before it is due.
    So the next leader has 20 s to take over before any message would be late. With --lookahead 0 the leader
    hands over at the due time, and the messages that are due while nobody leads are late.

    The last line sums up. Exit code 1 if anything was lost, early, delivered although it was cancelled, or
    doubled more often than a crash explains.
    """
    options = _options(call, messages, seconds)
    summary = await _until_signalled(options, json=call.out.json)
    if call.out.json:
        call.out.line(asdict(summary))
    else:
        for problem in summary.problems:
            call.out.text(f"problem: {problem}", style="red")
        call.out.text(summary.line, style="bold green" if summary.ok else "bold red")
    finish(ok=summary.ok)


def _options(call: Call, messages: int, seconds: float) -> Options:
    others = sorted(set(call.given) - _TAKEN)
    if others:
        raise UsageError(f"the demo brings its own settings; leave out {', '.join(others)}")
    settings = call.settings()
    sources = {line.name: line.source for line in explain_settings(settings, dict(call.given))}
    # Our default is another one than that of the setting.
    lookahead = None if sources["lookahead"] == "default" else settings.lookahead
    return Options(messages, seconds, lookahead)


async def _until_signalled(options: Options, *, json: bool) -> Summary:
    """Play; SIGTERM and Ctrl-C end it in order, so that nothing is left behind."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        playing = asyncio.ensure_future(play(options, _watcher(stack, json=json)))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, playing.cancel)
            stack.callback(loop.remove_signal_handler, number)
        with suppress(asyncio.CancelledError):
            return await playing
    note("stopped; nothing is left running")
    raise typer.Exit(INTERRUPTED)


def _watcher(stack: ExitStack, *, json: bool) -> Callable[[Snapshot], None]:
    """A live table on a terminal, a line now and then elsewhere."""
    stream = sys.stderr if json else sys.stdout
    if not stream.isatty():
        return _Lines(stream.write, stream.flush).show
    live = stack.enter_context(Live(console=Console(file=stream), refresh_per_second=4, transient=False))
    return lambda snapshot: live.update(_table(snapshot))


class _Lines:
    """Plain progress, every few seconds and whenever something changes that matters."""

    def __init__(self, write: Callable[[str], object], flush: Callable[[], object]) -> None:
        self._write = write
        self._flush = flush
        self._last = 0.0
        self._seen: tuple[object, ...] = ()

    def show(self, snapshot: Snapshot) -> None:
        matters = (snapshot.phase, snapshot.killed_pid, snapshot.takeover_s)
        if matters == self._seen and snapshot.elapsed_s - self._last < _LINE_EVERY:
            return
        self._seen, self._last = matters, snapshot.elapsed_s
        values = ", ".join(f"{name} {value}" for name, value in _values(snapshot) if value != "-")
        self._write(f"{values}\n")
        self._flush()


def _values(snapshot: Snapshot) -> list[tuple[str, str]]:
    leader = "-" if snapshot.leader is None else f"{snapshot.leader} (term {snapshot.term})"
    return [
        ("phase", snapshot.phase),
        ("time", f"{snapshot.elapsed_s:.0f} s"),
        ("leader", leader),
        ("scheduled", f"{snapshot.scheduled:,}"),
        ("rows waiting", f"{snapshot.waiting:,}"),
        ("handed over", f"{snapshot.handed_over:,}"),
        ("delivered", f"{snapshot.delivered:,}"),
        ("lateness p50", _seconds(snapshot.lateness_p50_s)),
        ("lateness max", _seconds(snapshot.lateness_max_s)),
        ("killed", "-" if snapshot.killed_pid is None else f"process {snapshot.killed_pid}"),
        ("take-over", _seconds(snapshot.takeover_s)),
    ]


def _table(snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in _values(snapshot):
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
