"""The suite is worth something: a store that breaks the contract fails the test that guards it."""

import inspect

import broken_stores as broken
import pytest

from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.model.limits import BINARY_PROPERTY_BYTES
from postdate.model.rowcodec import encode_row
from postdate.testing.clock import VirtualClock
from postdate.testing.conformance import (
    DelayedStoreChangesConformance,
    DelayedStoreConformance,
    StoreHarness,
)

SUITES = (DelayedStoreConformance, DelayedStoreChangesConformance)
TESTS = {
    name: suite
    for suite in SUITES
    for name, _ in inspect.getmembers(suite, inspect.iscoroutinefunction)
    if name.startswith("test_")
}
GUARDS = [
    (broken.CreatesAlways, "test_create_is_safe_in_many_processes_at_once"),
    (broken.HidesAMissingTable, "test_a_missing_table_is_told_with_the_way_out"),
    (broken.KeepsMilliseconds, "test_every_field_comes_back_as_it_was_stored"),
    (broken.CutsBodies, "test_bodies_of_every_size_come_back"),
    (broken.RefusesLongHeaders, "test_headers_as_long_as_they_may_be_come_back"),
    (broken.ForgetsThePayload, "test_a_payload_reference_takes_the_place_of_the_body"),
    (broken.IsEarly, "test_a_row_is_due_at_its_instant_and_not_a_microsecond_before"),
    (broken.StopsAtAnEmptyPage, "test_a_row_is_due_at_its_instant_and_not_a_microsecond_before"),
    (broken.ForgetsTheOrder, "test_rows_come_in_due_order_across_partitions"),
    (broken.OrdersBySeconds, "test_microseconds_decide_the_order_within_a_second"),
    (broken.StopsAtTheFirstPage, "test_more_than_a_page_is_read_whole_once_and_in_order"),
    (broken.OrdersEachPageAlone, "test_more_than_a_page_is_read_whole_once_and_in_order"),
    (broken.StopsUpcomingAtAPage, "test_more_than_a_page_is_read_whole_once_and_in_order"),
    (broken.PagesByOffset, "test_removing_a_page_while_reading_hides_no_other_row"),
    (broken.HidesWhatIsHeldBack, "test_a_row_that_is_held_back_is_due_and_the_next_one_all_the_same"),
    (broken.DropsWhatItCannotRead, "test_a_row_that_cannot_be_read_is_told_in_its_place_and_blocks_nobody"),
    (broken.FailsAtWhatItCannotRead, "test_a_row_that_cannot_be_read_is_told_in_its_place_and_blocks_nobody"),
    (broken.PassesOverWhatItCannotRead, "test_a_row_that_cannot_be_read_is_the_next_one_as_any_other"),
    (broken.TellsTheFirstAlways, "test_next_due_is_the_earliest_of_all_or_after_an_instant"),
    (broken.FailsForNothing, "test_get_answers_none_for_what_is_not_there"),
    (broken.TakesTheEnd, "test_upcoming_takes_the_start_and_leaves_the_end"),
    (broken.InsertsAgain, "test_the_same_message_twice_is_one_row_the_first"),
    (broken.Overwrites, "test_the_same_message_twice_is_one_row_the_first"),
    (broken.LooksBeforeItAdds, "test_the_same_message_twice_in_one_call_is_one_row"),
    (broken.LooksBeforeItAdds, "test_of_two_adders_exactly_one_makes_each_row"),
    (broken.Overwrites, "test_adding_again_leaves_attempts_as_they_are"),
    (broken.KnowsMessagesByTheirIds, "test_another_time_or_destination_is_another_row"),
    (broken.OverwritesInOtherPartitions, "test_many_rows_over_many_partitions_are_added_in_one_call"),
    (broken.RefusesABatchThatIsPartlyThere, "test_existing_rows_in_a_batch_keep_no_other_out"),
    (broken.RefusesAllForOne, "test_a_row_that_the_store_cannot_hold_keeps_no_other_out"),
    (broken.GivesUpAtTheFirstMissingRow, "test_remove_answers_for_each_row_whether_this_call_removed_it"),
    (broken.ClaimsRemovalsOfItsOwnTwice, "test_remove_answers_for_each_row_whether_this_call_removed_it"),
    (broken.RemovesWhatChanged, "test_a_row_that_changed_is_not_removed_and_keeps_nobody_from_it"),
    (broken.ClaimsEveryRemoval, "test_of_two_removers_exactly_one_hears_true"),
    (broken.LooksBeforeItRemoves, "test_of_two_removers_exactly_one_hears_true"),
    (broken.LooksBeforeItRemoves, "test_the_same_row_twice_in_one_call_is_removed_once"),
    (broken.ClaimsEveryRemoval, "test_a_row_that_was_never_there_answers_false"),
    (broken.CountsVersionsAnew, "test_a_row_that_was_removed_and_added_again_is_another_version"),
    (broken.RemovesWhatChanged, "test_of_an_update_and_a_removal_one_wins"),
    (broken.IgnoresTheGuard, "test_a_guard_that_says_no_keeps_every_row"),
    (broken.FailsWithoutRows, "test_removing_nothing_is_nothing"),
    (broken.ForgetsAttempts, "test_update_writes_attempts_and_leaves_the_rest"),
    (broken.UpdatesOnlyWhatItCanRead, "test_attempts_of_a_row_that_cannot_be_read_are_kept_too"),
    (broken.NeverLetsGo, "test_update_can_clear_the_next_attempt"),
    (broken.UpdatesWhatChanged, "test_update_of_a_changed_or_missing_row_answers_none"),
]


async def passes(kind, name):
    """Whether a store of this kind passes a test of the suite."""
    account, clock = MemoryAccount(), VirtualClock()
    good = MemoryBackend(account, "delays", clock, frozenset()).store
    await good.create()
    absent = MemoryBackend(account, "absent", clock, frozenset()).store

    async def spoil(key):
        row = await good.get(key)
        good.insert_raw({**encode_row(row.delayed), "Headers": "not json"})

    harness = StoreHarness(kind(good), kind(absent), spoil, largest_body=BINARY_PROPERTY_BYTES)
    suite = TESTS[name]()
    try:
        await getattr(suite, name)(harness)
    except (Exception, pytest.fail.Exception):
        return False
    return True


@pytest.mark.parametrize("name", TESTS)
async def test_the_good_store_passes(name):
    assert await passes(broken.Wrapper, name)


@pytest.mark.parametrize(("kind", "guard"), GUARDS)
async def test_a_store_that_breaks_the_contract_fails(kind, guard):
    assert not await passes(kind, guard)


def test_every_test_has_a_store_that_fails_it():
    assert TESTS.keys() - {guard for _, guard in GUARDS} == set()


def test_every_mistake_is_found():
    kinds = {
        value
        for value in vars(broken).values()
        if inspect.isclass(value) and value.__module__ == broken.__name__
    }
    assert kinds - {kind for kind, _ in GUARDS} == {broken.Wrapper, broken.Changed}
