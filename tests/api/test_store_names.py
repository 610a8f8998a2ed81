"""What the author of a store, or of a whole backend, may import: these names and no others."""

import inspect
from importlib import import_module

import pytest

from postdate import ports
from postdate.ports import DelayedStore
from postdate.testing import conformance

#: A change here is a change of the promise: say so in the changelog.
PORTS = [
    "AddResult",
    "Backend",
    "Busy",
    "DelayedMessage",
    "DelayedRow",
    "DelayedStore",
    "DeliveryLogStore",
    "Done",
    "Fresh",
    "Guard",
    "InboxAnswer",
    "InboxClaim",
    "InboxKey",
    "InboxStore",
    "LeaderRecord",
    "LeaseLost",
    "LeaseStore",
    "LogDisplaced",
    "LogFile",
    "Message",
    "PayloadStore",
    "QueueReceiver",
    "QueueSender",
    "Receipt",
    "Received",
    "Row",
    "RowKey",
    "TimeoutStore",
    "UnreadableRow",
    "added_before",
    "all_added",
    "claim_lost",
    "note_removed",
    "removed_before",
]
SUITES = [
    "DelayedStoreChangesConformance",
    "DelayedStoreConformance",
    "DeliveryLogConformance",
    "DeliveryLogHarness",
    "InboxHarness",
    "InboxStoreConformance",
    "LeaseHarness",
    "LeaseStoreConformance",
    "PayloadHarness",
    "PayloadStoreConformance",
    "QueueConformance",
    "QueueHarness",
    "SharedTableConformance",
    "SharedTableHarness",
    "StoreHarness",
    "TimeoutHarness",
    "TimeoutStoreConformance",
]
#: Beside these, what docs/how-to/own-store.md tells to use.
HELPERS = {
    "postdate.model.keys": ["EPOCH", "due_time"],
    "postdate.model.limits": ["PAGE_ROWS"],
    "postdate.model.rowcodec": ["decode_row", "encode_row"],
}
#: What an own store needs to have, with its parameters.
METHODS = {
    "create": [],
    "add": ["messages"],
    "due": ["until"],
    "next_due": ["after"],
    "remove": ["rows", "guard"],
    "update": ["row", "failure_count", "next_attempt_at"],
    "get": ["key"],
    "upcoming": ["start", "end"],
}


@pytest.mark.parametrize(("module", "approved"), [(ports, PORTS), (conformance, SUITES)])
def test_the_names_are_the_approved_ones(module, approved):
    assert module.__all__ == approved
    assert module.__doc__


@pytest.mark.parametrize(
    "value", [getattr(module, name) for module in (ports, conformance) for name in module.__all__]
)
def test_each_class_and_function_is_documented(value):
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)


@pytest.mark.parametrize("module", HELPERS)
def test_helpers_are_there(module):
    assert set(HELPERS[module]) <= vars(import_module(module)).keys()


def test_a_store_has_these_methods_and_no_others():
    methods = {name: value for name, value in vars(DelayedStore).items() if not name.startswith("_")}
    assert {name: list(inspect.signature(value).parameters)[1:] for name, value in methods.items()} == METHODS
    assert all(inspect.getdoc(value) for value in methods.values())
