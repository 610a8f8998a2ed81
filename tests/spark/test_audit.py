"""The audit of an endpoint on a real storage service: from its log, rows and error queue to a verdict."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from postdate import Endpoint, Outgoing, UsageError
from postdate.cli.main import main
from postdate.spark.auditing import Reading, audit

FAR = datetime(2040, 1, 1, 12, tzinfo=UTC)
AT_ONCE = Reading(settle=timedelta(0))


@pytest.fixture
def lived(postdate_settings, reference):
    """An endpoint that has kept a log: two messages handed over, one waiting, one cancelled, two in error."""

    async def live():
        settings = postdate_settings.model_copy(
            update={"delivery_log": True, "number_of_retries": 0, "check_destinations": False}
        )
        async with Endpoint(settings) as endpoint:
            due = endpoint.parts.clock.now() - timedelta(seconds=90)
            rows = [Outgoing("target", {}, at=due, message_id=f"done-{n}") for n in range(2)]
            rows += [Outgoing("nowhere", {}, at=due, message_id=f"stuck-{n}") for n in range(2)]
            rows += [Outgoing("target", {}, at=FAR, message_id=name) for name in ("later", "not-at-all")]
            accepted = [await endpoint.parts.intake.accept_unasked(one) for one in rows]
            handles = await endpoint.parts.intake.store(accepted)
            await endpoint.cancel(handles[-1])
            await endpoint.schedule("target", {}, delay=1, message_id="short")
            result = await endpoint.deliver_due()
            assert (result.handed_over, result.moved_to_error_queue) == (2, 2)
            # The audit leaves out what may have been scheduled while it looks, by a clock of whole seconds.
            clock, logged_until = endpoint.parts.clock, endpoint.parts.clock.latest()
            while clock.now() <= logged_until + timedelta(seconds=1):
                await endpoint.parts.backend.reach()

    asyncio.run(live())
    return reference


def test_each_message_of_the_log_has_its_verdict_and_the_report_tells_them(spark, lived, tmp_path):
    html, folder = tmp_path / "audit.html", tmp_path / "verdicts"
    done = audit(spark, lived, reading=Reading(settle=timedelta(0), html=html, verdicts=str(folder)))
    counts = {verdict: count for verdict, count in done.verdicts.items() if count}
    assert counts == {"late": 2, "waiting": 1, "cancelled": 1, "in error queue": 2, "delivered": 1}
    assert done.ok
    assert (done.messages, done.overdue, done.log_gaps, done.error_queue_complete) == (7, 0, 0, True)
    rows = {row.message_id: row for row in spark.read.parquet(str(folder)).collect()}
    assert {name: row.verdict for name, row in rows.items()} == {
        "done-0": "late",
        "done-1": "late",
        "stuck-0": "in error queue",
        "stuck-1": "in error queue",
        "later": "waiting",
        "not-at-all": "cancelled",
        "short": "delivered",
    }
    assert rows["done-0"].lateness_s == pytest.approx(90, abs=30)
    terms = {one.group: one.deliveries for one in done.lateness if one.by == "term"}
    assert terms == {"1": 2, "none": 1}
    page = html.read_text(encoding="utf-8")
    assert "passed" in page
    assert not re.search(r"(src|href)=", page)
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) == 2
    for plot in plots:
        ET.fromstring(plot)  # noqa: S314 - our own


def test_what_was_given_and_never_came_is_lost_and_the_command_fails(
    lived, spark, postdate_settings, tmp_path, capfd, monkeypatch
):
    given = tmp_path / "scheduled.csv"
    due = FAR.isoformat()
    given.write_text(f"id,due_time\nlater,{due}\nnever,{due}\n")
    # The session of all tests serves this command too, and must survive it.
    monkeypatch.setattr("postdate.spark.local_session", lambda master: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    code = main(
        [
            *("spark", "audit", str(given), "--json"),
            *("--endpoint", postdate_settings.endpoint),
            *("--connection", postdate_settings.connection.get_secret_value()),
            *("--delivery-log-interval", "50ms"),
            *("--select", "id as message_id", "--select", "'target' as destination", "--select", "due_time"),
        ]
    )
    told = json.loads(capfd.readouterr().out)
    assert code == 1
    assert (told["ok"], told["messages"]) == (False, 2)
    assert {name: n for name, n in told["verdicts"].items() if n} == {"waiting": 1, "lost": 1}
    (example,) = told["examples"]
    assert (example["verdict"], example["message_id"]) == ("lost", "never")


def test_an_audit_without_a_log_says_how_to_get_one(spark, reference):
    with pytest.raises(UsageError, match="POSTDATE_DELIVERY_LOG=true"):
        audit(spark, reference, reading=AT_ONCE)


def test_a_report_without_a_folder_is_refused_before_anything_is_read(spark, reference, tmp_path):
    with pytest.raises(UsageError, match="the report is a file in a folder that exists"):
        audit(spark, reference, reading=Reading(html=tmp_path / "nowhere" / "audit.html"))


def test_due_times_without_a_zone_are_refused(spark, reference):
    expected = spark.createDataFrame(
        [("m1", "target", "2040-01-01T12:00:00"), ("m2", "target", "2040-01-01T12:00:00Z")],
        "message_id string, destination string, due_time string",
    )
    with pytest.raises(UsageError, match=r"1 rows .* with its zone"):
        audit(spark, reference, expected, AT_ONCE)
