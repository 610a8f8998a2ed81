"""What the unit tests share: how many examples hypothesis tries, and how values of ours look at random."""

import string
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st

from postdate.model.limits import EARLIEST_DUE, LATEST_DUE
from postdate.model.message import Message

MICROSECOND = timedelta(microseconds=1)


def examples(count: int) -> settings:
    """The same `count` examples in every run: a test that passed does not fail by chance."""
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


#: Any Unicode that UTF-8 can carry, escapes and other planes more often than chance would have it.
texts = st.text(max_size=12) | st.text(alphabet="\"\\/&'+<>`\x00\x1f\x7f\x85é\u2028\ufeff🚚\n", max_size=12)
names = texts.filter(bool)
header_maps = st.dictionaries(names, st.none() | texts, max_size=6)
bodies = st.binary(max_size=60)
messages = st.builds(Message, message_id=names, headers=header_maps, body=bodies)

due_times = st.datetimes(
    EARLIEST_DUE.replace(tzinfo=None),
    LATEST_DUE.replace(tzinfo=None) - MICROSECOND,
    timezones=st.just(UTC),
)
#: Instants of a few seconds, where order by text and by time are easily confused.
near_times = st.integers(0, 3_000_000).map(
    lambda micros: datetime(2026, 3, 1, 6, 59, 58, 500_000, tzinfo=UTC) + micros * MICROSECOND
)
identities = st.text(alphabet="0123456789abcdef", min_size=32, max_size=32)
queue_names = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True).filter(
    lambda name: 3 <= len(name) <= 63
)
identifiers = st.text(alphabet=string.ascii_letters + string.digits + "-", min_size=1, max_size=20)
