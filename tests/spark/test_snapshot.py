"""Jobs `snapshot` and `restore` on a real table, with rows of .NET endpoints and rows that can't be read."""

import base64
import json
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from postdate import Outgoing
from postdate.errors import PostdateError, UsageError
from postdate.model.keys import RowKey
from postdate.spark.ranges import DueWindow
from postdate.spark.snapshots import restore, snapshot, snapshots
from postdate.spark.snapshots.restoring import Chosen
from tests.spark.test_schedule_killed import frame_of, wait_for_rows, workers

FIRST = datetime(2040, 1, 1, 7, 59, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LARGE = b"x" * 100_000
#: Enough that tasks are in the middle when they are killed.
ROWS = 6_000


def messages(count, prefix="m"):
    return [
        Outgoing("target", {"n": n}, at=FIRST + n * MINUTE, message_id=f"{prefix}{n:03}")
        for n in range(count)
    ]


async def table(endpoint):
    """All rows by key, as the service's JSON, less what the service says of each write."""
    found = {}
    async for page in endpoint.parts.backend.scan().pages(""):
        for row in page:
            kept = {n: v for n, v in row.entry.items() if not n.startswith(("odata.", "Timestamp"))}
            found[row.key] = kept
    return found


async def empty(endpoint):
    async for page in endpoint.parts.backend.scan().pages("", ("PartitionKey", "RowKey")):
        for row in page:
            await endpoint.parts.backend.store._client.delete_entity(row.key.partition, row.key.row)


def adding(entities):
    async def add(endpoint):
        rows = {RowKey(one["PartitionKey"], one["RowKey"]): json.dumps(one).encode() for one in entities}
        outcomes = await endpoint.parts.backend.store.add_entities(rows)
        assert all(one.created for one in outcomes)

    return add


def strange(golden):
    """A row of .NET, and rows that nobody of us writes: each has to come back as it is."""
    dotnet = golden["table_row"]["entity"]
    key = {"PartitionKey": "2040010109", "RowKey": "20400101090000_x'y", "Destination": "target"}
    return [
        {name: value for name, value in dotnet.items() if not name.startswith("odata.")},
        {**key, "RowKey": "20400101090000_no body"},
        {**key, "Body": "text", "Headers": "no json", "MessageId": "\ud800 half"},
        {**key, "RowKey": "no time at all", "Body@odata.type": "Edm.Binary", "Body": ""},
        {
            **key,
            "RowKey": "20400101090001_types",
            "Long@odata.type": "Edm.Int64",
            "Long": "9007199254740993",
            "Double": 3.5,
            "Id@odata.type": "Edm.Guid",
            "Id": "2f0c2a3e-9a0c-4a3e-8f57-6e3a8b1f8f10",
            "Body@odata.type": "Edm.Binary",
            "Body": base64.b64encode(b"\0\xff").decode(),
        },
    ]


def test_everything_comes_back_as_it_was_and_twice_is_once(
    spark, reference, schedule, on_endpoint, golden, tmp_path
):
    folder = str(tmp_path / "snap")
    schedule([*messages(200), Outgoing("target", LARGE, at=FIRST, message_id="large")])
    on_endpoint(adding(strange(golden)))
    before = on_endpoint(table)
    taken = snapshot(spark, reference, folder, payloads=True)
    assert (taken.rows, taken.written, taken.removed, taken.base) == (206, 206, 0, None)
    assert (taken.large_bodies, taken.payloads) == (1, 1)
    assert taken.unreadable == 4
    assert snapshots(spark, folder) == [taken]
    days = {one.name for one in (tmp_path / "snap" / "rows" / f"snapshot={taken.snapshot}").glob("due_day=*")}
    assert days == {"due_day=2026-03-01", "due_day=2040-01-01", "due_day=none"}
    on_endpoint(empty)
    (blob,) = {row["BodyBlob"] for row in before.values() if "BodyBlob" in row}
    on_endpoint(lambda endpoint: endpoint.parts.backend.payloads.sweep(FIRST + timedelta(days=1000)))
    assert on_endpoint(table) == {}
    told = restore(spark, reference, folder)
    assert (told.restored, told.already_there, told.payloads) == (206, 0, 1)
    assert on_endpoint(table) == before
    assert on_endpoint(lambda endpoint: endpoint.parts.backend.payloads.get(blob)) == LARGE
    again = restore(spark, reference, folder)
    assert (again.restored, again.already_there) == (0, 206)
    assert on_endpoint(table) == before


def test_the_next_snapshot_holds_what_changed_and_each_can_be_restored(
    spark, reference, schedule, on_endpoint, tmp_path
):
    folder = str(tmp_path / "snap")
    schedule(messages(10))
    first, before = snapshot(spark, reference, folder), on_endpoint(table)

    async def change(endpoint):
        store = endpoint.parts.backend.store
        rows = [row async for row in store.upcoming()]
        assert await store.remove(rows[:2]) == [True, True]
        assert await store.update(rows[2], failure_count=3, next_attempt_at=None)

    on_endpoint(change)
    schedule(messages(3, "new"))
    second, after = snapshot(spark, reference, folder), on_endpoint(table)
    assert (second.base, second.written, second.removed, second.rows) == (first.snapshot, 4, 2, 11)
    third = snapshot(spark, reference, folder)
    assert (third.base, third.written, third.removed, third.rows) == (second.snapshot, 0, 0, 11)
    for name, expected in ((first.snapshot, before), (None, after)):
        on_endpoint(empty)
        restore(spark, reference, folder, snapshot=name)
        assert on_endpoint(table) == expected
    # Restored rows have other versions: they are changed, though none of them differs.
    assert snapshot(spark, reference, folder).written == 11


def test_only_what_is_chosen_and_was_not_handed_over_comes_back(
    spark, reference, schedule, on_endpoint, tmp_path
):
    folder = str(tmp_path / "snap")
    schedule(messages(20))
    snapshot(spark, reference, folder)
    on_endpoint(empty)
    log = spark.createDataFrame(
        [
            ("m004", "TARGET", FIRST + 4 * MINUTE, "handed_over"),
            ("m005", "target", FIRST + 4 * MINUTE, "handed_over"),  # an earlier attempt of the same message
            ("m006", "target", FIRST + 6 * MINUTE, "scheduled"),
            ("m008", "target", FIRST + 8 * MINUTE, "cancelled"),
        ],
        "message_id string, destination string, due_time timestamp, outcome string",
    )
    chosen = Chosen("message_id <> 'm007'", DueWindow(FIRST + 3 * MINUTE, FIRST + 9 * MINUTE), "Target")
    told = restore(spark, reference, folder, chosen=chosen, log=log)
    assert (told.rows, told.restored, told.left_out) == (20, 3, 2)
    ids = sorted(row["MessageId"] for row in on_endpoint(table).values())
    assert ids == ["m003", "m005", "m006"]
    assert restore(spark, reference, folder, chosen=Chosen(destination="other")).restored == 0
    with pytest.raises(UsageError, match=r"condition 'nonsense = 1'.*nonsense") as refused:
        restore(spark, reference, folder, chosen=Chosen("nonsense = 1"))
    assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="the log has no column outcome; there are message_id"):
        restore(spark, reference, folder, log=log.drop("outcome"))


def test_damaged_files_and_missing_snapshots_are_one_line(spark, reference, schedule, on_endpoint, tmp_path):
    folder = tmp_path / "snap"
    with pytest.raises(UsageError, match="there is no snapshot in this folder"):
        restore(spark, reference, str(folder))
    schedule(messages(20))
    taken = snapshot(spark, reference, str(folder))
    with pytest.raises(UsageError, match=f"there is no snapshot 1999; there are {taken.snapshot}"):
        restore(spark, reference, str(folder), snapshot="1999")
    on_endpoint(empty)
    rows = folder / "rows" / f"snapshot={taken.snapshot}"
    kept = tmp_path / "kept"
    shutil.copytree(rows, kept)
    for damage in (cut_in_two, without_a_column, removed):
        damage(spark, min(rows.glob("*/*.parquet")))
        with pytest.raises(PostdateError) as told:
            restore(spark, reference, str(folder))
        assert "\n" not in str(told.value)
        assert damage is cut_in_two or "is damaged: its files hold" in str(told.value)
        assert on_endpoint(table) == {}
        shutil.rmtree(rows)
        shutil.copytree(kept, rows)
    assert restore(spark, reference, str(folder)).restored == 20


def cut_in_two(_, path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (path.parent / f".{path.name}.crc").unlink()


def without_a_column(_, path):
    import pyarrow.parquet as pq

    pq.write_table(pq.ParquetFile(path).read().drop_columns(["entity"]), path)
    (path.parent / f".{path.name}.crc").unlink()


def removed(_, path):
    path.unlink()


def test_a_folder_of_another_table_is_refused(spark, reference, schedule, tmp_path):
    folder = tmp_path / "snap"
    schedule(messages(1))
    taken = snapshot(spark, reference, str(folder))
    (manifest,) = (folder / "manifests" / taken.snapshot).glob("*.txt")
    manifest.write_text(manifest.read_text().replace(taken.table, "elsewhere"))
    (manifest.parent / f".{manifest.name}.crc").unlink()
    with pytest.raises(UsageError, match=r"holds snapshots of table elsewhere .*give table"):
        snapshot(spark, reference, str(folder))


def test_a_restore_whose_workers_are_killed_is_exact(spark, reference, on_endpoint, tmp_path):
    folder = str(tmp_path / "snap")
    frame_of(spark).limit(ROWS).write.format("postdate").options(**reference.options()).mode("append").save()
    before = on_endpoint(table)
    snapshot(spark, reference, folder)
    on_endpoint(empty_quickly)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(restore, spark, reference, folder)
        wait_for_rows(on_endpoint, 500, running)
        victims = workers()
        assert not running.done()
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        told = running.result()
    assert told.restored + told.already_there == ROWS
    assert told.already_there >= 100, "the rows of the killed tasks were there already"
    assert on_endpoint(table) == before


async def empty_quickly(endpoint):
    store = endpoint.parts.backend.store
    rows = [row async for row in store.upcoming()]
    assert all(await store.remove(rows))
