"""Terms and waits: trust ends before the lease does, and waits grow within their bounds."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.core.backoff import jittered, retry_wait
from postdate.core.term import Term, begin

leases = st.integers(15, 60)
instants = st.floats(0, 1e7)


@given(instants, leases, st.floats(0, 100))
@examples(30)
def test_a_process_never_acts_when_its_lease_may_have_run_out(attempted_at, lease, answered_after):
    """The service counts from when it handled the call: after the attempt began."""
    term = begin(3, attempted_at=attempted_at, lease_seconds=lease)
    assert term.number == 3
    assert term.trusted_until < attempted_at + lease
    assert not term.may_act(attempted_at + lease)
    assert term.may_act(attempted_at + answered_after) is (attempted_at + answered_after < term.trusted_until)


@given(instants, leases)
@examples(20)
def test_a_lease_is_renewed_while_there_is_time_for_a_second_try(attempted_at, lease):
    term = begin(1, attempted_at=attempted_at, lease_seconds=lease)
    assert attempted_at < term.renew_at < term.trusted_until
    assert term.trusted_until - term.renew_at >= lease / 3


def test_the_instant_at_which_trust_ends_is_not_trusted():
    term = Term(1, trusted_until=10.0, renew_at=5.0)
    assert term.may_act(9.999)
    assert not term.may_act(10.0)


@given(st.integers(1, 10_000), st.floats(0.001, 60), st.floats(0.001, 3600), st.integers())
@examples(50)
def test_a_wait_is_between_half_and_all_of_what_doubles_up_to_the_maximum(failures, base, maximum, seed):
    wait = retry_wait(failures, base_s=base, maximum_s=maximum, random=Random(seed))
    full = min(maximum, base * 2.0 ** min(failures - 1, 60))
    assert full / 2 <= wait <= full
    assert wait <= maximum


def test_waits_of_many_processes_differ():
    waits = {retry_wait(3, base_s=1, maximum_s=60, random=Random(seed)) for seed in range(20)}
    assert len(waits) == 20
    assert max(waits) - min(waits) > 1


@given(st.floats(0.001, 1e6), st.floats(0, 1), st.integers())
@examples(25)
def test_jitter_only_shortens_and_by_no_more_than_its_share(seconds, share, seed):
    assert seconds * (1 - share) <= jittered(seconds, Random(seed), share) <= seconds
