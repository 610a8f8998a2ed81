"""The undo file: never overwritten, never followed by anything after a line that was cut, and checked on read."""

import os
from datetime import UTC, datetime

import pytest
from error_cases import failed

from postdate.engine.undo_file import Header, UndoFile, UndoWriter
from postdate.errors import UsageError
from postdate.model.failed import failed_message
from postdate.ports import Receipt

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
HEADER = Header("retry", "error", "Contoso.Orders", NOW)


def message(number):
    return failed_message(failed(number), f"native-{number}", NOW, 1)


async def written(path, count=2):
    writer = await UndoWriter.create(path, HEADER)
    for number in range(1, count + 1):
        assert await writer.entry(message(number), failed(number), destination="orders") == number
    await writer.sent(1, Receipt("copy", "pop"))
    await writer.outcome(1, "retried", NOW)
    await writer.close()


async def test_what_was_written_is_read(tmp_path):
    await written(tmp_path / "undo")
    file = UndoFile.read(tmp_path / "undo")
    assert file.header == HEADER
    first, second = file.entries
    assert (first.number, first.native_id, first.message_id) == (1, "native-1", "m00001")
    assert (first.destination, first.sent, first.outcome) == ("orders", Receipt("copy", "pop"), "retried")
    assert (second.sent, second.outcome, second.undone) == (None, None, None)
    assert file.recorded(second).text == failed(2)
    assert file.recorded(second).payload_body is None


async def test_bytes_of_a_large_body_survive(tmp_path):
    writer = await UndoWriter.create(tmp_path / "undo", HEADER)
    body = bytes(range(256)) * 10
    await writer.entry(message(1), failed(1), destination=None, payload_body=body)
    await writer.close()
    file = UndoFile.read(tmp_path / "undo")
    assert file.recorded(file.entries[0]).payload_body == body


async def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "undo").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        await UndoWriter.create(tmp_path / "undo", HEADER)
    assert (tmp_path / "undo").read_text() == "mine"


async def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        await UndoWriter.create(tmp_path / "no" / "undo", HEADER)


async def test_a_line_that_was_cut_does_not_count_and_is_dropped_before_more_is_written(tmp_path):
    path = tmp_path / "undo"
    await written(path)
    with path.open("ab") as file:
        file.write(b'{"undone": 1, "is": "with')
    read = UndoFile.read(path)
    assert read.entries[0].undone is None
    writer = await UndoWriter.append(read)
    await writer.undone(2, "withdrawn", NOW)
    await writer.close()
    assert [entry.undone for entry in UndoFile.read(path).entries] == [None, "withdrawn"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b'{"postdate": "err', "is empty"),
        (b"hello\n", "line 1: this is not an undo file"),
        (b"[]\n", "line 1"),
        (b"{}\n", "line 1"),
        (
            b'{"postdate":"errors","version":2,"did":"retry","error_queue":"e","endpoint":"x","at":"x"}\n',
            "line 1",
        ),
        (b"\xff\xfe\n", "line 1"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, content, says):
    (tmp_path / "undo").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        UndoFile.read(tmp_path / "undo")


@pytest.mark.parametrize(
    "line", [b'{"sent": 9, "native_id": "x", "pop_receipt": "y"}', b'{"outcome": 1}', b"x"]
)
async def test_a_wrong_line_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "undo"
    await written(path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:], b""]))
    with pytest.raises(UsageError, match="line 4"):
        UndoFile.read(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        UndoFile.read(tmp_path / "undo")


async def test_after_a_write_that_failed_nothing_more_is_written(tmp_path, monkeypatch):
    writer = await UndoWriter.create(tmp_path / "undo", HEADER)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]) and full())
    with pytest.raises(OSError, match="No space") as failure:
        await writer.entry(message(1), failed(1), destination="orders")
    assert failure.value.filename == str(tmp_path / "undo")
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space"):
        await writer.outcome(1, "retried", NOW)
    await writer.close()
    assert UndoFile.read(tmp_path / "undo").entries == []


def full():
    raise OSError(28, "No space left on device")


async def test_an_entry_that_was_changed_meanwhile_is_refused(tmp_path):
    path = tmp_path / "undo"
    await written(path)
    file = UndoFile.read(path)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(UsageError, match="entry 2"):
        file.recorded(file.entries[1])
    path.unlink()
    with pytest.raises(UsageError, match="No such file"):
        file.recorded(file.entries[1])
