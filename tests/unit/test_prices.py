"""What requests cost: a table that comes with us, or one of the user's."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.errors import ConfigurationError
from postdate.model.prices import FREE, PriceTable, billed
from postdate.model.requests import Outcome, RequestKind
from postdate.settings import list_prices, load_prices

QUERY, PUT = RequestKind("table", "query"), RequestKind("queue", "put message")
DELETE, ODD = RequestKind("blob", "delete blob"), RequestKind("blob", "unknown")
TABLE = PriceTable("test", "EUR", {"a": 2.0, "b": 50.0}, {QUERY: "a", PUT: "b", DELETE: FREE})


def test_prices_are_for_ten_thousand_requests():
    cost = TABLE.cost({QUERY: 10_000, PUT: 100, DELETE: 5})
    assert (cost.amount, cost.currency, cost.unpriced) == (2.5, "EUR", ())


def test_an_operation_without_a_price_is_named_and_left_out():
    cost = TABLE.cost({QUERY: 10_000, ODD: 7})
    assert (cost.amount, cost.unpriced) == (2.0, ("blob unknown",))


@examples(100)
@given(st.dictionaries(st.sampled_from(list(Outcome)), st.integers(1, 1000)))
def test_all_is_billed_but_what_was_throttled(outcomes):
    counts = {"table query": {outcome.value: count for outcome, count in outcomes.items()}}
    expected = sum(outcomes.values()) - outcomes.get(Outcome.THROTTLED, 0)
    assert billed(counts) == ({QUERY: expected} if expected else {})


def test_our_table_says_what_it_is_and_prices_each_meter_once():
    ours = load_prices(None)
    assert ours.currency == "USD"
    assert "list prices" in ours.about
    assert set(ours.meters.values()) == {*ours.prices, FREE}
    assert all(0 < price < 1 for price in ours.prices.values())


def test_a_copy_of_our_table_with_another_price_is_used(tmp_path):
    path = tmp_path / "prices.toml"
    text = list_prices().replace('"table scan" = 0.00036', '"table scan" = 0.117')
    path.write_text(text.replace('currency = "USD"', 'currency = "EUR"'))
    mine = load_prices(str(path))
    assert mine.cost({QUERY: 10_000}).amount == pytest.approx(0.117)
    assert mine.cost({QUERY: 1}).currency == "EUR"
    assert mine.of(PUT) == load_prices(None).of(PUT)
    assert math.isclose(load_prices(None).of(QUERY) or 0, 0.000000036)


HEAD = 'about = "mine"\ncurrency = "EUR"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x =", "Invalid value"),
        ('about = "mine"\n', "currency"),
        (HEAD + '[price]\na = "dear"\n[meter]\n', "Expected `float`"),
        (HEAD + "[price]\na = -1\n[meter]\n", "'a' is -1"),
        (HEAD + "[price]\na = inf\n[meter]\n", "'a' is inf"),
        (HEAD + "[price]\na = nan\n[meter]\n", "'a' is nan"),
        (HEAD + '[price]\na = 1\n[meter.table]\nquery = "b"\n', "'b', which [price] lacks"),
        (HEAD + '[price]\na = 1\n[meter.tables]\nquery = "a"\n', "[meter.tables] has 'query'"),
        (HEAD + '[price]\na = 1\n[meter.table]\nquire = "a"\n', "'quire', which is no operation"),
        (HEAD + "[prices]\na = 1\n", "prices"),
    ],
)
def test_a_mistake_in_a_table_is_one_line_that_names_the_file_and_the_place(tmp_path, text, says):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_prices(str(path))
    line = str(caught.value)
    assert line.startswith(f"POSTDATE_PRICES={path} is not a table of prices: ")
    assert says in line
    assert "\n" not in line


def test_a_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"POSTDATE_PRICES=.*none\.toml: No such file"):
        load_prices(str(tmp_path / "none.toml"))


def test_a_table_without_a_line_for_an_operation_leaves_it_unpriced(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(HEAD + '[price]\na = 1\n[meter.table]\nquery = "a"\n')
    assert load_prices(str(path)).cost({QUERY: 10_000, PUT: 1}).unpriced == ("queue put message",)
