"""Which failures a retry can help."""

import sqlite3

import msgspec
import pydantic
import pytest

from postdate.core.classify import Classifier, Kind
from postdate.errors import (
    AccessDenied,
    DestinationNotFound,
    NotProvisioned,
    OutcomeUnknown,
    PoisonMessage,
    ServiceBusy,
    StorageUnreachable,
)


class Refused(Exception):
    """As HTTP clients raise them."""

    def __init__(self, status):
        self.status_code = status


class Response:
    def __init__(self, status):
        self.status_code = status


class WithResponse(Exception):
    def __init__(self, status):
        self.response = Response(status)


class Sql(Exception):
    def __init__(self, state):
        self.sqlstate = state


class OldSql(Exception):
    def __init__(self, state):
        self.pgcode = state


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("?"), Kind.UNKNOWN),
        (ValueError("?"), Kind.UNKNOWN),
        (ConnectionResetError(), Kind.TRANSIENT),
        (ConnectionRefusedError(), Kind.BUSY),
        (TimeoutError(), Kind.TRANSIENT),
        (KeyError("x"), Kind.BROKEN),
        (TypeError(), Kind.BROKEN),
        (AttributeError(), Kind.BROKEN),
        (ModuleNotFoundError(), Kind.PERMANENT),
        (PoisonMessage("x"), Kind.PERMANENT),
        (DestinationNotFound("x"), Kind.PERMANENT),
        (NotProvisioned("x"), Kind.PERMANENT),
        (AccessDenied("x"), Kind.PERMANENT),
        (ServiceBusy("x"), Kind.BUSY),
        (StorageUnreachable("x"), Kind.BUSY),
        (OutcomeUnknown("x"), Kind.TRANSIENT),
        (Refused(400), Kind.PERMANENT),
        (Refused(404), Kind.PERMANENT),
        (Refused(412), Kind.TRANSIENT),
        (Refused(429), Kind.BUSY),
        (Refused(500), Kind.UNKNOWN),
        (Refused(502), Kind.TRANSIENT),
        (WithResponse(503), Kind.BUSY),
        (WithResponse(422), Kind.PERMANENT),
        (Sql("40001"), Kind.TRANSIENT),
        (Sql("40P01"), Kind.TRANSIENT),
        (Sql("23505"), Kind.PERMANENT),
        (Sql("53300"), Kind.BUSY),
        (OldSql("57P03"), Kind.BUSY),
        (Sql("ZZ000"), Kind.UNKNOWN),
    ],
)
def test_each_kind_is_told_by_type_number_or_status(error, kind):
    assert Classifier()(error) is kind


def raised(work):
    with pytest.raises(Exception) as caught:
        work()
    return caught.value


def test_a_unique_key_of_a_real_database_is_permanent():
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (id integer primary key)")
        database.execute("insert into t values (1)")
        error = raised(lambda: database.execute("insert into t values (1)"))
    assert Classifier()(error) is Kind.PERMANENT


def test_a_locked_database_is_transient(tmp_path):
    one, two = (sqlite3.connect(tmp_path / "x.db", timeout=0) for _ in range(2))
    one.execute("begin exclusive")
    error = raised(lambda: two.execute("begin exclusive"))
    one.close()
    two.close()
    assert Classifier()(error) is Kind.TRANSIENT


def test_a_model_that_refuses_its_values_is_permanent():
    class Order(pydantic.BaseModel):
        number: int

    assert Classifier()(raised(lambda: Order(number="x"))) is Kind.PERMANENT


def test_the_innermost_known_error_decides():
    try:
        try:
            raise ConnectionRefusedError
        except ConnectionRefusedError as error:
            raise RuntimeError("could not place the order") from error
    except RuntimeError as error:
        assert Classifier()(error) is Kind.BUSY


def test_an_error_that_was_being_handled_does_not_make_the_code_broken():
    try:
        try:
            {}["x"]
        except KeyError:
            raise RuntimeError("no such order yet")  # noqa: B904 - that is the point
    except RuntimeError as error:
        assert Classifier()(error) is Kind.UNKNOWN


def test_a_cause_that_is_cut_off_says_nothing():
    try:
        try:
            raise TimeoutError
        except TimeoutError:
            raise RuntimeError("x") from None
    except RuntimeError as error:
        assert Classifier()(error) is Kind.UNKNOWN


def test_a_ring_of_causes_ends():
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert Classifier()(one) is Kind.UNKNOWN


def test_rules_of_the_users_come_first():
    classifier = Classifier()
    classifier.add(TimeoutError, Kind.PERMANENT)
    assert classifier(TimeoutError()) is Kind.PERMANENT
    classifier.rule(lambda error: Kind.BUSY if isinstance(error, TimeoutError) else None)
    assert classifier(TimeoutError()) is Kind.BUSY
    assert classifier(ConnectionResetError()) is Kind.TRANSIENT


def test_a_decoder_of_other_libraries_is_unknown_unless_told():
    error = raised(lambda: msgspec.json.decode(b"{"))
    assert Classifier()(error) is Kind.UNKNOWN
