"""The errors that users catch: the tree that is drawn is the tree that is."""

import inspect
import re

import pytest

from postdate import errors
from postdate.errors import PostdateError, StorageError, UsageError

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__
]
_LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: {2,}(?P<meaning>.+))?$")


def drawn() -> dict[str, str | None]:
    """Each error of the drawing and the one above it."""
    assert errors.__doc__ is not None
    above: list[str] = []
    tree: dict[str, str | None] = {}
    for line in errors.__doc__.splitlines():
        match = _LINE.match(line)
        if match is not None:
            depth = len(match["indent"]) // 4
            del above[depth:]
            tree[match["name"]] = above[-1] if above else None
            above.append(match["name"])
    return tree


def test_the_drawing_is_the_tree():
    parents = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert drawn() == {**parents, "PostdateError": None}


def test_every_error_has_one_base_to_catch():
    for kind in CLASSES:
        assert issubclass(kind, PostdateError)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_means(kind):
    assert kind.__doc__
    assert kind.__doc__ != kind.__mro__[1].__doc__


def test_mistakes_of_the_caller_are_value_errors_too():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(StorageError, ValueError)


def test_exit_codes_are_1_failed_2_wrong_usage_3_storage_unreachable():
    codes = {kind.__name__: kind.exit_code for kind in CLASSES}
    usage = {kind.__name__ for kind in CLASSES if issubclass(kind, UsageError)}
    assert {name for name, code in codes.items() if code == 2} == usage
    assert {name for name, code in codes.items() if code == 3} == {"StorageUnreachable"}
    assert set(codes.values()) == {1, 2, 3}
