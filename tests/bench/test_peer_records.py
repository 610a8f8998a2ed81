"""What the peers' processes note, and what the benchmark makes of it."""

from pathlib import Path

import pytest

from bench.peers.wiring import Record, Recorder, Wiring


@pytest.fixture
def wiring(tmp_path):
    return Wiring(url="redis://127.0.0.1:1/0", record=str(tmp_path / "record"), label="worker-1")


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "record")


def append(record_of, text):
    with Path(record_of.record).open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_process_finds_its_wiring_in_its_own_folder(wiring, tmp_path, monkeypatch):
    wiring.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert Wiring.read() == wiring


def test_a_delivery_says_how_late_it_was_by_this_machines_clock(wiring, record):
    Recorder(wiring).note(7, 1_000)
    record.refresh()
    (delivery,) = record.deliveries
    assert (delivery.number, delivery.due_s, delivery.label) == (7, 1.0, "worker-1")
    assert delivery.late_s == delivery.at_s - 1.0 > 0


def test_several_processes_share_a_record(wiring, record, tmp_path):
    other = Wiring(url=wiring.url, record=wiring.record, label="worker-2")
    first, second = Recorder(wiring), Recorder(other)
    for number in range(0, 10, 2):
        first.note(number, 0)
        second.note(number + 1, 0)
    record.refresh()
    assert [delivery.number for delivery in record.deliveries] == list(range(10))
    assert {delivery.label for delivery in record.deliveries} == {"worker-1", "worker-2"}


def test_half_a_line_is_read_when_it_is_whole(wiring, record):
    append(wiring, "1 2000 2.5 a\n2 2000 3")
    record.refresh()
    assert record.count == 1
    append(wiring, ".5 a\n")
    record.refresh()
    assert [delivery.late_s for delivery in record.deliveries] == [0.5, 1.5]


def test_a_message_that_came_twice_counts_once_with_its_first_delivery(wiring, record):
    append(wiring, "1 1000 3.0 b\n1 1000 1.5 a\n2 1000 1.0 a\n")
    record.refresh()
    assert (record.count, record.duplicated) == (2, 1)
    assert {number: one.at_s for number, one in record.firsts.items()} == {1: 1.5, 2: 1.0}


def test_probes_tell_who_is_ready_and_are_no_deliveries(wiring, record):
    append(wiring, "-1 1000 1.5 worker-2\n")
    record.refresh()
    assert (record.probed, record.count, record.duplicated) == ({"worker-2"}, 0, 0)


def test_the_longest_gap_is_between_neighbours_in_time(wiring, record):
    assert record.longest_gap_s == 0.0
    append(wiring, "3 0 9.0 a\n1 0 1.0 a\n2 0 4.0 a\n")
    record.refresh()
    assert record.longest_gap_s == 5.0
