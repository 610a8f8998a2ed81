"""The workloads: the same for every peer."""

import random
from collections.abc import Sequence

from bench.peers.processes import PeerFailed
from bench.peers.stage import Stage
from bench.peers.wiring import Message
from postdate.bench.figures import Drain, Figures, IdleHour, Kill, Lateness, Memory
from postdate.bench.scale import Scale

#: Nothing arrives for so long: the rest is not coming.
_QUIET_SECONDS = 60.0
#: What a workload that is due one by one is scheduled ahead, and more for many.
_AHEAD_SECONDS = 5.0
_SCHEDULED_PER_SECOND = 250
_HOUR = 3600
_FAR_SECONDS = 24 * _HOUR
_KILLED_PER_SECOND = 50
_STEADY_SECONDS = 5.0
_STEADY_SHARE = 0.01
_STEADY_CPU = 0.1
_SETTLE_SECONDS = 240.0
#: Waits of random length before a message that ends a quiet time, so that beats of polling are hit anywhere.
_IDLE_AHEAD_SECONDS = 3.0
_IDLE_SPREAD_SECONDS = 5.0


async def drain(stage: Stage, scale: Scale, figures: Figures) -> None:
    """Messages that are due when the worker starts."""
    due_ms = int(stage.now() * 1000)
    await stage.schedule([(number, due_ms) for number in range(scale.drain)])
    started = stage.now()
    await stage.start_worker()
    if not await stage.until(lambda: stage.record.count > 0, within=_QUIET_SECONDS):
        raise PeerFailed(f"nothing was delivered within {_QUIET_SECONDS:.0f} s of the worker's start")
    first = stage.read()
    await stage.until_delivered(scale.drain, quiet_s=_QUIET_SECONDS)
    last = stage.read()
    if last.delivered < scale.drain:
        raise PeerFailed(
            f"{last.delivered} of {scale.drain} delivered, and no more for {_QUIET_SECONDS:.0f} s"
        )
    instants = [delivery.at_s for delivery in stage.record.firsts.values()]
    seconds = max(instants) - min(instants)
    metered = last.delivered - first.delivered
    figures.drain = Drain(
        messages=scale.drain,
        seconds=seconds,
        per_s=(scale.drain - 1) / seconds,
        client_cpu_us=(last.client_cpu_s - first.client_cpu_s) / metered * 1e6,
        server_cpu_us=(last.server_cpu_s - first.server_cpu_s) / metered * 1e6,
        requests_per_message=(last.requests - first.requests) / metered,
    )
    figures.notes.append(
        f"drain: the first delivery came {min(instants) - started:.1f} s after the worker's start;"
        f" CPU and requests are those of the last {metered} messages"
    )


async def trickle(stage: Stage, scale: Scale, figures: Figures) -> None:
    """Messages that are due one after the other."""
    await stage.start_workers()
    messages = _one_by_one(stage, scale.trickle_rate * scale.trickle_seconds, scale.trickle_rate)
    figures.trickle = await _late(stage, messages)


async def burst(stage: Stage, scale: Scale, figures: Figures) -> None:
    """Messages that are all due at one instant."""
    await stage.start_workers()
    due_ms = int((stage.now() + scale.burst_ahead_s) * 1000)
    figures.burst = await _late(stage, [(number, due_ms) for number in range(scale.burst)])


async def idle(stage: Stage, scale: Scale, figures: Figures) -> None:
    """Nothing to do, and then single messages."""
    await stage.start_workers()
    await stage.clock.sleep(_STEADY_SECONDS)
    before = stage.read()
    await stage.clock.sleep(scale.idle_s)
    after = stage.read()
    seconds = after.at - before.at
    figures.idle_hour = IdleHour(
        requests=(after.requests - before.requests) / seconds * _HOUR,
        how=f"counted for {seconds:.0f} s, times {_HOUR / seconds:.1f}",
    )
    for number in range(scale.after_idle):
        ahead = _IDLE_AHEAD_SECONDS + random.random() * _IDLE_SPREAD_SECONDS
        await stage.schedule([(number, int((stage.now() + ahead) * 1000))])
        await stage.until_delivered(number + 1, quiet_s=ahead + _QUIET_SECONDS)
        await stage.clock.sleep(_STEADY_SECONDS)
    figures.after_idle = _lateness(stage, scale.after_idle)
    figures.notes.append(
        f"after idle: shortened from 30 min; {seconds:.0f} s of quiet before the first of {scale.after_idle}"
        f" messages, {_STEADY_SECONDS:.0f} s before each other"
    )


async def memory(stage: Stage, scale: Scale, figures: Figures) -> None:
    """Many messages wait, due in a day, when the worker starts."""
    due_ms = int((stage.now() + _FAR_SECONDS) * 1000)
    await stage.schedule([(number, due_ms) for number in range(scale.waiting)])
    await stage.start_worker()
    if not await _steady(stage):
        figures.notes.append(f"memory: still changing after {_SETTLE_SECONDS:.0f} s")
    figures.memory = Memory(waiting=scale.waiting, client_mb=stage.client_mb(), server_mb=stage.server_mb())


async def kill(stage: Stage, scale: Scale, figures: Figures) -> None:
    """The worker that delivers most is killed as soon as half of the messages were delivered."""
    contender = stage.contender
    await stage.start_workers(2 if contender.several else 1)
    messages = _one_by_one(stage, scale.kill, _KILLED_PER_SECOND)
    await stage.schedule(messages)
    _check_ahead(stage, messages)
    if not await stage.until(
        lambda: stage.record.count * 2 >= scale.kill, within=scale.kill / _KILLED_PER_SECOND + _QUIET_SECONDS
    ):
        raise PeerFailed(f"only {stage.record.count} of {scale.kill} were delivered before the kill")
    killed_at = stage.clock.monotonic()
    await stage.kill_busiest()
    if not contender.several:
        await stage.start_worker()
    # What should come back within two minutes is waited for; what takes longer is reported as outstanding.
    patience = scale.kill_wait_s + (contender.recovery_s if contender.recovery_s <= 120 else 0)
    await stage.until(lambda: stage.record.count >= scale.kill, within=patience)
    waited = stage.clock.monotonic() - killed_at
    await stage.clock.sleep(_STEADY_SECONDS)
    stage.look()
    missing = set(range(scale.kill)) - set(stage.record.firsts)
    outstanding = missing & contender.held(stage.server)
    second = "the busier of two workers" if contender.several else "the only worker, started again at once,"
    late = f", {len(outstanding)} not delivered within {waited:.0f} s of it" if outstanding else ""
    figures.kill = Kill(
        scheduled=scale.kill,
        lost=len(missing) - len(outstanding),
        outstanding=len(outstanding),
        duplicated=stage.record.duplicated,
        longest_gap_s=stage.record.longest_gap_s,
        how=f"{second} killed after half of the messages{late}; recovery: {contender.recovery}",
    )


def _one_by_one(stage: Stage, count: int, rate: int) -> list[Message]:
    first = stage.now() + _AHEAD_SECONDS + count / _SCHEDULED_PER_SECOND
    return [(number, int((first + number / rate) * 1000)) for number in range(count)]


async def _late(stage: Stage, messages: Sequence[Message]) -> Lateness:
    """Schedule messages and wait for them."""
    await stage.schedule(messages)
    _check_ahead(stage, messages)
    until_due = messages[-1][1] / 1000 - stage.now()
    await stage.until(lambda: stage.record.count >= len(messages), within=until_due)
    await stage.until_delivered(len(messages), quiet_s=_QUIET_SECONDS)
    return _lateness(stage, len(messages))


def _check_ahead(stage: Stage, messages: Sequence[Message]) -> None:
    behind = stage.now() - messages[0][1] / 1000
    if behind > 0:
        raise PeerFailed(f"scheduling {len(messages)} messages ended {behind:.1f} s after the first was due")


def _lateness(stage: Stage, expected: int) -> Lateness:
    late = [delivery.late_s for delivery in stage.record.firsts.values()]
    return Lateness.of(late, expected=expected, duplicated=stage.record.duplicated)


async def _steady(stage: Stage) -> bool:
    """Wait until the worker neither works nor grows; False: it still did when patience ended."""
    until = stage.clock.monotonic() + _SETTLE_SECONDS
    size, before = stage.client_mb(), stage.read()
    while stage.clock.monotonic() < until:
        await stage.clock.sleep(_STEADY_SECONDS)
        now_size, now = stage.client_mb(), stage.read()
        busy = (now.client_cpu_s - before.client_cpu_s) / (now.at - before.at)
        if busy < _STEADY_CPU and abs(now_size - size) <= _STEADY_SHARE * size:
            return True
        size, before = now_size, now
    return False
