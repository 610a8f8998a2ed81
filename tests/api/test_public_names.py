"""The public surface: these names and no others, each loaded when it is first used."""

import ast
import inspect
from importlib import import_module

import pytest

import postdate

#: What users may import from `postdate`. A change here is a change of the promise: say so in the changelog.
APPROVED = [
    "CancelOutcome",
    "DelayedDeliveryDisabled",
    "Delivery",
    "DestinationNotFound",
    "Endpoint",
    "MessageContext",
    "Outgoing",
    "PostdateError",
    "Recoverability",
    "ScheduledMessage",
    "Settings",
    "StorageError",
    "TryLater",
    "UsageError",
    "load_settings",
]


def test_the_public_names_are_the_approved_ones():
    assert postdate.__all__ == APPROVED
    assert len(APPROVED) <= 15


@pytest.mark.parametrize("name", APPROVED)
def test_each_public_name_is_there_and_documented(name):
    value = getattr(postdate, name)
    assert value is getattr(import_module(value.__module__), name)
    assert value.__module__.startswith("postdate.")
    assert inspect.getdoc(value)


def test_a_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from postdate import *", names)  # noqa: S102 - what a user may write
    assert set(APPROVED) == names.keys() - {"__builtins__"}


def test_completion_offers_the_public_names():
    assert set(APPROVED) <= set(dir(postdate))


def test_a_name_that_is_not_there_is_an_attribute_error_as_everywhere():
    with pytest.raises(AttributeError, match="module 'postdate' has no attribute 'Queue'"):
        _ = postdate.Queue
    assert not hasattr(postdate, "Scheduler")


def test_type_checkers_see_the_names_that_are_loaded_when_used():
    tree = ast.parse(inspect.getsource(postdate))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == postdate._HOMES
    assert sorted(imports) == APPROVED
