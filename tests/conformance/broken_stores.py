"""Stores with one mistake each: those that people make who write one."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from postdate.errors import MessageRefused, MessageTooLarge
from postdate.model.delayed import DelayedRow, UnreadableRow
from postdate.model.limits import BINARY_PROPERTY_BYTES, PAGE_ROWS
from postdate.ports import AddResult


class Wrapper:
    """A store that does everything as the good one inside it."""

    def __init__(self, good):
        self.good = good

    def __getattr__(self, name):
        return getattr(self.good, name)

    async def all_due(self, until):
        return [row async for page in self.good.due(until) for row in page]

    async def there(self, rows):
        """For each row or message whether its row is there, whatever its version."""
        return [await self.good.get(row.key) is not None for row in rows]


class Changed(Wrapper):
    """Reads every row through `changed`."""

    def changed(self, row):
        raise NotImplementedError

    async def get(self, key):
        row = await self.good.get(key)
        return None if row is None else self.changed(row)

    async def due(self, until):
        async for page in self.good.due(until):
            yield [self.changed(row) for row in page]


# --- reading --------------------------------------------------------------------------------------


class CreatesAlways(Wrapper):
    async def create(self):
        await self.good.create()
        return True


class HidesAMissingTable(Wrapper):
    async def next_due(self, after=None):
        try:
            return await self.good.next_due(after)
        except Exception:
            return None


class KeepsMilliseconds(Changed):
    """As a column does that holds no more."""

    def changed(self, row):
        due_at = row.delayed.due_at
        due_at = due_at.replace(microsecond=due_at.microsecond // 1000 * 1000)
        return replace(row, delayed=replace(row.delayed, due_at=due_at))


class CutsBodies(Changed):
    def changed(self, row):
        message = replace(row.delayed.message, body=row.delayed.message.body[:50_000])
        return replace(row, delayed=replace(row.delayed, message=message))


class RefusesLongHeaders(Wrapper):
    async def add(self, messages):
        if any(len(str(message.message.headers)) > 4000 for message in messages):
            raise MessageTooLarge("4,000 characters are enough")
        return await self.good.add(messages)


class ForgetsThePayload(Wrapper):
    async def add(self, messages):
        return await self.good.add([replace(message, payload_ref=None) for message in messages])


class IsEarly(Wrapper):
    def due(self, until):
        return self.good.due(until + timedelta(seconds=1))


class ForgetsTheOrder(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield list(reversed(page))


class OrdersBySeconds(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield sorted(page, key=lambda row: (row.key.row[:14], row.key.row[-32:]))


class StopsAtTheFirstPage(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield page
            return


class StopsAtAnEmptyPage(Wrapper):
    """Takes an empty page for the end, as a reader does that ignores the continuation."""

    async def due(self, until):
        async for page in self._with_empty_pages(until):
            if not page:
                return
            yield page

    async def _with_empty_pages(self, until):
        yield []
        async for page in self.good.due(until):
            yield page


class OrdersEachPageAlone(Wrapper):
    """Cuts pages first and sorts then."""

    async def due(self, until):
        rows = await self.all_due(until)
        rows = rows[1::2] + rows[::2]
        for start in range(0, len(rows), PAGE_ROWS):
            yield sorted(rows[start : start + PAGE_ROWS], key=lambda row: row.key.row)


class StopsUpcomingAtAPage(Wrapper):
    async def upcoming(self, *, start=None, end=None):
        count = 0
        async for row in self.good.upcoming(start=start, end=end):
            count += 1
            if count <= PAGE_ROWS:
                yield row


class PagesByOffset(Wrapper):
    """Skips as many rows as it has read, although those are gone by then."""

    async def due(self, until):
        offset = 0
        while page := (await self.all_due(until))[offset : offset + PAGE_ROWS]:
            yield page
            offset += len(page)


class HidesWhatIsHeldBack(Wrapper):
    """Takes the next attempt for the due time, as a store does that knows one instant per row."""

    async def due(self, until):
        async for page in self.good.due(until):
            yield [row for row in page if (row.delayed.next_attempt_at or until) <= until]


class DropsWhatItCannotRead(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield [row for row in page if isinstance(row, DelayedRow)]


class FailsAtWhatItCannotRead(Changed):
    def changed(self, row):
        if isinstance(row, UnreadableRow):
            raise ValueError(row.reason)  # noqa: TRY004 - as a parser would
        return row


class PassesOverWhatItCannotRead(Wrapper):
    async def next_due(self, after=None):
        rows = [row async for row in self.good.upcoming() if isinstance(row, DelayedRow)]
        instants = [row.delayed.due_at for row in rows]
        return min((at for at in instants if after is None or at > after), default=None)


class TellsTheFirstAlways(Wrapper):
    async def next_due(self, after=None):
        del after
        return await self.good.next_due()


class FailsForNothing(Wrapper):
    async def get(self, key):
        row = await self.good.get(key)
        if row is None:
            raise KeyError(key)
        return row


class TakesTheEnd(Wrapper):
    def upcoming(self, *, start=None, end=None):
        return self.good.upcoming(start=start, end=end and end + timedelta(microseconds=1))


# --- adding ---------------------------------------------------------------------------------------


class InsertsAgain(Wrapper):
    """Says of every message that this call stored it."""

    async def add(self, messages):
        return [AddResult(r.key, r.etag, created=True) for r in await self.good.add(messages)]


class Overwrites(Wrapper):
    async def add(self, messages):
        await self._make_room(messages)
        return await self.good.add(messages)

    async def _make_room(self, messages):
        rows = [row for message in messages if (row := await self.good.get(message.key))]
        await self.good.remove(rows)


class OverwritesInOtherPartitions(Overwrites):
    """Looks for what is there in the partition of the first message only."""

    async def _make_room(self, messages):
        first = messages[0].key.partition
        await super()._make_room([message for message in messages if message.key.partition != first])


class LooksBeforeItAdds(Wrapper):
    """Asks what is there, and adds the rest in a second step: others come in between."""

    async def add(self, messages):
        there = await self.there(messages)
        await asyncio.sleep(0)
        results = await self.good.add(messages)
        return [replace(result, created=not known) for result, known in zip(results, there, strict=True)]


class KnowsMessagesByTheirIds(Wrapper):
    """One row for each message id, whenever and wherever it is to go."""

    async def add(self, messages):
        first = {}
        for message in messages:
            first.setdefault(message.message.message_id, message)
        return await self.good.add([first[message.message.message_id] for message in messages])


class RefusesABatchThatIsPartlyThere(Wrapper):
    async def add(self, messages):
        there = await self.there(messages)
        if any(there) and not all(there):
            raise MessageRefused("unique constraint violated")
        return await self.good.add(messages)


class RefusesAllForOne(Wrapper):
    """Lets one row that can't be stored keep the others out, as a transaction does by itself."""

    async def add(self, messages):
        if any(len(message.message.body) > BINARY_PROPERTY_BYTES for message in messages):
            raise MessageTooLarge("too large")
        return await self.good.add(messages)


# --- removing and changing ------------------------------------------------------------------------


class GivesUpAtTheFirstMissingRow(Wrapper):
    """Lets one row that is gone fail its whole batch, as a transaction does by itself."""

    async def remove(self, rows, guard=None):
        if not all(await self.there(rows)):
            return [False] * len(rows)
        return await self.good.remove(rows, guard)


class RemovesWhatChanged(Wrapper):
    """Deletes by key, whatever the version."""

    async def remove(self, rows, guard=None):
        current = [await self.good.get(row.key) or row for row in rows]
        return await self.good.remove(current, guard)


class ClaimsEveryRemoval(Wrapper):
    async def remove(self, rows, guard=None):
        return [True for _ in await self.good.remove(rows, guard)]


class ClaimsRemovalsOfItsOwnTwice(Wrapper):
    """Says True once more of what it removed before, as a repeat after a lost answer might."""

    def __init__(self, good):
        super().__init__(good)
        self.removed = set()

    async def remove(self, rows, guard=None):
        answers = await self.good.remove(rows, guard)
        self.removed |= {(row.key, row.etag) for row, gone in zip(rows, answers, strict=True) if gone}
        return [(row.key, row.etag) in self.removed for row in rows]


class LooksBeforeItRemoves(Wrapper):
    """Asks what is there, and deletes it in a second step."""

    async def remove(self, rows, guard=None):
        current = [await self.good.get(row.key) for row in rows]
        answers = [now is not None and now.etag == row.etag for now, row in zip(current, rows, strict=True)]
        await asyncio.sleep(0)
        await self.good.remove(rows, guard)
        return answers


class IgnoresTheGuard(Wrapper):
    async def remove(self, rows, guard=None):
        del guard
        return await self.good.remove(rows)


class FailsWithoutRows(Wrapper):
    async def remove(self, rows, guard=None):
        if not rows:
            raise ValueError("DELETE ... WHERE key IN ()")
        return await self.good.remove(rows, guard)


class CountsVersionsAnew(Changed):
    """Etags are numbers that begin at 0 with each row."""

    def __init__(self, good):
        super().__init__(good)
        self.numbers = {}
        self.etags = {}

    def changed(self, row):
        return replace(row, etag=str(self.numbers.get(row.key, 0)))

    def known(self, row):
        mine = row.key in self.etags and row.etag == str(self.numbers.get(row.key, 0))
        return replace(row, etag=self.etags[row.key]) if mine else row

    async def add(self, messages):
        results = await self.good.add(messages)
        for result in results:
            if result.created:
                self.numbers[result.key] = 0
            self.etags[result.key] = result.etag
        return [replace(result, etag=str(self.numbers[result.key])) for result in results]

    async def remove(self, rows, guard=None):
        return await self.good.remove([self.known(row) for row in rows], guard)


class UpdatesWhatChanged(Wrapper):
    async def update(self, row, *, failure_count, next_attempt_at):
        current = await self.good.get(row.key) or row
        return await self.good.update(current, failure_count=failure_count, next_attempt_at=next_attempt_at)


class ForgetsAttempts(Wrapper):
    async def update(self, row, *, failure_count, next_attempt_at):
        del failure_count
        return await self.good.update(row, failure_count=0, next_attempt_at=next_attempt_at)


class UpdatesOnlyWhatItCanRead(Wrapper):
    async def update(self, row, *, failure_count, next_attempt_at):
        if isinstance(row, UnreadableRow):
            return None
        return await self.good.update(row, failure_count=failure_count, next_attempt_at=next_attempt_at)


class NeverLetsGo(Wrapper):
    """Takes None for "leave it as it is"."""

    async def update(self, row, *, failure_count, next_attempt_at):
        next_attempt_at = next_attempt_at or row.delayed.next_attempt_at
        return await self.good.update(row, failure_count=failure_count, next_attempt_at=next_attempt_at)
