"""Pieces of log files: each line in one of them, wherever they are cut."""

from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.spark.log_pieces import Piece, cut, lines_in

contents = st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b".")), max_size=12).map(
    lambda lines: b"".join(line + b"\n" for line in lines)
)


async def read_all(files, parts, chunk):
    async def read(name, start, end):
        assert 0 <= start < end <= len(files[name])
        return files[name][start:end]

    return [
        line
        for part in parts
        for piece in part
        async for some in lines_in(piece, read, chunk)
        for line in some
    ]


@examples(300)
@given(st.lists(contents, max_size=3), st.integers(1, 30), st.integers(1, 12))
async def test_each_line_is_read_once_and_in_order(texts, size, chunk):
    files = {str(number): text for number, text in enumerate(texts)}
    parts = list(cut([(name, 0, len(text)) for name, text in files.items()], size))
    assert all(sum(p.end - p.start for p in part) <= size for part in parts)
    assert await read_all(files, parts, chunk) == [line for text in texts for line in text.split(b"\n")[:-1]]


async def test_what_has_no_end_yet_is_no_line():
    assert await read_all({"a": b"one\ntwo"}, [[Piece("a", 0, 7, 7)]], 3) == [b"one"]


async def test_a_span_that_begins_in_the_middle_of_a_file_reads_on_from_there():
    parts = list(cut([("a", 4, 8)], 100))
    assert await read_all({"a": b"one\ntwo\nsix\n"}, parts, 100) == [b"two"]
