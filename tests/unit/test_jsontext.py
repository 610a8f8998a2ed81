"""JSON text: written as System.Text.Json does, read from everybody."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit_cases import examples, header_maps, texts

from postdate.errors import PoisonMessage
from postdate.model.jsontext import longest_map, quote, quote_or_null, read, write_map

#: The escapes of System.Text.Json's default encoder, as a table: one entry for each character of ASCII.
ESCAPED = {chr(code): f"\\u{code:04X}" for code in [*range(0x20), 0x7F]}
ESCAPED |= {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\"}
ESCAPED |= {char: f"\\u{ord(char):04X}" for char in "\"&'+<>`"}
TABLE = {chr(code): ESCAPED.get(chr(code), chr(code)) for code in range(0x80)}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def by_the_table(text: str) -> str:
    units = text.encode("utf-16-be")
    pairs = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(TABLE[chr(u)] if u < 0x80 else f"\\u{u:04X}" for u in pairs)


def test_each_character_of_ascii_is_written_by_the_table():
    for char, written in TABLE.items():
        assert quote(char) == f'"{written}"'
        assert quote(f"a{char}b") == f'"a{written}b"'


@given(header_maps)
@examples(75)
def test_no_map_is_longer_than_it_can_be(values):
    assert len(write_map(values)) <= longest_map(values)


def test_a_map_of_pairs_of_surrogates_is_nearly_as_long_as_it_can_be():
    values = {"\U00010000" * 9: "\U0010ffff" * 9}
    assert longest_map(values) - 3 == len(write_map(values))


@given(texts | st.text())
@example("\uffff\U0010ffff\U00010000\u0080")
@examples(75)
def test_any_text_is_written_by_the_table_and_read_back_by_any_reader(text):
    written = quote(text)
    assert written == f'"{by_the_table(text)}"'
    assert written.isascii()
    assert json.loads(written) == read(written) == text


@pytest.mark.parametrize("half", [chr(0xD83D), chr(0xDC00), f"a{chr(0xD800)}b"], ids=ascii)
def test_half_a_surrogate_pair_is_written_as_the_replacement_character(half):
    assert quote(half) == '"' + "".join(c if c.isascii() else "\\uFFFD" for c in half) + '"'
    json.loads(quote(half)).encode()


@given(header_maps)
@examples(40)
def test_a_map_is_written_compactly_in_its_own_order(values):
    written = write_map(values)
    assert list(json.loads(written).items()) == list(values.items())
    parts = [f"{quote(name)}:{quote_or_null(value)}" for name, value in values.items()]
    assert written == "{" + ",".join(parts) + "}"


def test_null_is_written_for_no_value():
    assert quote_or_null(None) == "null"
    assert quote_or_null("null") == '"null"'


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
@examples(60)
def test_reading_is_what_the_standard_library_reads(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    expected = json.loads(text)
    assert read(text) == expected
    assert read(text.encode()) == expected
    assert read("\ufeff" + text) == expected
    assert read(b"\xef\xbb\xbf" + text.encode()) == expected


@pytest.mark.parametrize("number", ["1e400", "-0", "123456789012345678901234567890", "1E+2", "0.1"])
def test_numbers_of_any_size_are_read(number):
    assert read(number) == json.loads(number)


def test_raw_control_characters_are_read_as_versions_7_to_11_wrote_them():
    for code in range(0x20):
        text = f'{{"a":"x{chr(code)}y"}}'
        assert read(text) == {"a": f"x{chr(code)}y"}
        assert read(text.encode()) == {"a": f"x{chr(code)}y"}


def test_half_a_surrogate_pair_is_read_as_the_replacement_character():
    assert read('{"a":"x\\ud800y"}') == {"a": "x\ufffdy"}
    assert read(b'["\\udc00"]') == ["\ufffd"]
    assert read('"\ud83d"') == "\ufffd"
    assert read('["\\ud83d\\ude9a", "\\ud83d"]') == ["🚚", "\ufffd"]


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        '{"a":}',
        "nul",
        "'a'",
        "[1,]",
        '"\\x"',
        "\ufeff\ufeff1",
        "[" * 100_000,
        "9" * 5000,
        b"\xff\xfe",
        b"\x80",
    ],
    ids=lambda broken: repr(broken)[:12],
)
def test_what_is_not_json_is_poison_and_nothing_else(broken):
    with pytest.raises(PoisonMessage, match="not JSON") as refused:
        read(broken)
    assert "\n" not in str(refused.value)


def test_deep_nesting_in_bytes_is_poison_too():
    with pytest.raises(PoisonMessage, match="not JSON"):
        read(b'{"a":' * 100_000)


@given(
    st.dictionaries(
        st.text("ab \t\n\"'ü\x00", max_size=4), st.none() | st.text("ab \t\n\"'ü\x00", max_size=4)
    )
)
def test_a_map_is_its_names_and_values_one_by_one(values):
    one_by_one = ",".join(f"{quote(name)}:{quote_or_null(value)}" for name, value in values.items())
    assert write_map(values) == "{" + one_by_one + "}"
