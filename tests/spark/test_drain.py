"""Job `drain`: a backlog is handed over by many tasks in one term, as a leader would."""

import pytest
from drain_cases import Account, duplicates

from postdate.spark.draining import DrainOptions, drain


@pytest.fixture
def account(postdate_settings, reference):
    """The endpoint that `reference` names."""
    return Account(postdate_settings)


def test_a_backlog_is_handed_over_once_and_in_one_term(spark, reference, account):
    account.backlog(700)
    told = drain(spark, reference, DrainOptions(rows_per_range=200))
    copies = account.taken()
    assert sorted(one.message_id for one in copies) == [f"m{n:05}" for n in range(700)]
    assert {one.term for one in copies} == {told.term}
    assert (told.end, told.found, told.handed_over, told.left, told.unheard) == ("done", 700, 700, 0, 0)
    assert told.by_destination == {"target": 700}
    assert (told.possible_duplicates, told.failed, told.killed_attempts) == (0, 0, 0)
    assert told.tasks >= 4
    assert account.waiting() == 0
    again = drain(spark, reference)
    assert (again.end, again.found, again.term, again.tasks) == ("done", 0, told.term + 1, 0)
