"""`snapshot`, `restore` and `forecast` as commands, on the session of all tests."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from postdate import Endpoint, Outgoing
from postdate.cli.main import main
from postdate.spark.snapshots import snapshot

FAR = datetime(2040, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def command(spark, reference, postdate_settings, monkeypatch, capfd):
    """Runs `postdate spark ...`: exit code, standard output, standard error."""
    monkeypatch.setattr("postdate.spark.local_session", lambda master: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    account = ("--endpoint", postdate_settings.endpoint)
    account += ("--connection", postdate_settings.connection.get_secret_value())

    def run(*arguments):
        capfd.readouterr()
        code = main(["spark", *arguments, *account])
        return code, *capfd.readouterr()

    return run


async def ids(endpoint):
    return sorted([row.message_id async for row in endpoint.upcoming()])


def test_what_the_own_log_tells_of_as_gone_stays_away(
    command, spark, reference, postdate_settings, on_endpoint, tmp_path
):
    folder = str(tmp_path / "kept")
    options = {"delivery_log": True, "number_of_retries": 0, "check_destinations": False}
    settings = postdate_settings.model_copy(update=options)

    async def live():
        async with Endpoint(settings) as endpoint:
            due = endpoint.parts.clock.now() - timedelta(seconds=90)
            rows = [Outgoing("target", {}, at=FAR, message_id=f"m{n}") for n in range(3)]
            rows += [Outgoing("target", {}, at=due, message_id="handed over")]
            rows += [Outgoing("nowhere", {}, at=due, message_id="in the error queue")]
            accepted = [await endpoint.parts.intake.accept_unasked(one) for one in rows]
            handles = await endpoint.parts.intake.store(accepted)
            # Withdrawn and scheduled again, before the snapshot: it is there.
            await endpoint.cancel(handles[2])
            await endpoint.schedule("target", {}, at=FAR, message_id="m2")
            # The service tells its time in whole seconds: what was before the snapshot must surely be.
            clock, then = endpoint.parts.clock, endpoint.parts.clock.latest()
            while clock.now() <= then + timedelta(seconds=1):
                await endpoint.parts.backend.reach()
            await asyncio.to_thread(snapshot, spark, reference, folder)
            await endpoint.cancel(handles[0])
            await endpoint.reschedule(handles[1], at=FAR + timedelta(hours=1))
            result = await endpoint.deliver_due()
            assert (result.handed_over, result.moved_to_error_queue) == (1, 1)

    asyncio.run(live())
    assert on_endpoint(ids) == ["m1", "m2"]
    code, out, err = command("restore", folder, "--own-log", "--json")
    assert (code, err.count("Traceback")) == (0, 0), err
    told = json.loads(out)
    assert (told["restored"], told["already_there"], told["left_out"]) == (0, 1, 4)
    assert on_endpoint(ids) == ["m1", "m2"]
    code, out, err = command("restore", folder, "--json")
    assert (code, json.loads(out)["restored"]) == (0, 4)
    assert on_endpoint(ids) == ["handed over", "in the error queue", "m0", "m1", "m1", "m2"]


WRONG = {
    "two logs": (("restore", "{kept}", "--log", "{kept}", "--own-log"), 2, "leave the other out"),
    "a log that is not there": (("restore", "{kept}", "--log", "{kept}/none"), 2, "none"),
    "a log that is no log": (
        ("restore", "{kept}", "--log", "{kept}/rows"),
        2,
        "the log has no column outcome",
    ),
    "a snapshot that is not there": (("restore", "{kept}", "--snapshot", "1999"), 2, "no snapshot 1999"),
    "a folder that is empty": (("restore", "{kept}/none"), 2, "there is no snapshot in this folder"),
    "a condition that is none": (("restore", "{kept}", "--where", "nonsense = 1"), 2, "nonsense"),
    "an end before its start": (
        ("restore", "{kept}", "--start", "2040-01-02T00:00:00Z", "--end", "2040-01-01T00:00:00Z"),
        2,
        "2040-01-01",
    ),
    "a folder that is a file": (("snapshot", "{file}"), 2, "{file}"),
    "no rate": (("forecast", "--rate", "0"), 2, "rate"),
    "a plot of no kind": (("forecast", "--rate", "10", "--plot", "{kept}/plot.docx"), 2, "plot.docx"),
    "a plot nowhere": (("forecast", "--rate", "10", "--plot", "{kept}/none/plot.png"), 2, "plot.png"),
    "an instant that is none": (("forecast", "--rate", "10", "--start", "soon"), 2, "soon"),
}


@pytest.fixture
def kept(spark, reference, schedule, tmp_path):
    schedule([Outgoing("target", {}, at=FAR, message_id="m0")])
    snapshot(spark, reference, str(tmp_path / "kept"))
    return str(tmp_path / "kept")


@pytest.mark.parametrize(("arguments", "code", "named"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_one_line_and_changes_nothing(
    command, kept, on_endpoint, tmp_path, arguments, code, named
):
    file = tmp_path / "a file"
    file.write_text("no folder")
    places = {"kept": kept, "file": str(file)}
    found, out, err = command(*(one.format(**places) for one in arguments))
    assert found == code, err
    assert out == ""
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert named.format(**places) in lines[0]
    assert on_endpoint(ids) == ["m0"]
    assert file.read_text() == "no folder"
