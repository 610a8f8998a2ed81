"""The hot calls beside the SDK's: the same requests leave, and real answers mean the same."""

import email
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient
from azure.storage.queue import generate_account_sas
from azure.storage.queue.aio import QueueClient
from azure_hot_cases import DUE, GIVEN, OWN, Recording, Sides, entity, keys, opened, ready

from postdate.backends.azure_storage.clients import API_VERSION
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
)
from postdate.backends.azure_storage.hot_calls import HotQueues, HotTable
from postdate.backends.azure_storage.rows import json_of
from postdate.model.keys import RowKey
from postdate.testing.faults import Faults


@pytest.fixture
async def sides(postdate_settings) -> AsyncIterator[Sides]:
    async for made in ready(postdate_settings):
        yield made


# Requests


def plain_request(request: tuple[str, str, dict[str, str], bytes]) -> tuple[Any, ...]:
    """A request without what differs from attempt to attempt; a transaction as the list of its parts."""
    method, url, headers, body = request
    headers = {name: value for name, value in headers.items() if name not in OWN}
    content: Any = ET.canonicalize(body.decode()) if method == "POST" and body.startswith(b"<") else body
    if headers.get("content-type", "").startswith("multipart/"):
        kind, boundary = headers.pop("content-type").split("; boundary=")
        assert boundary.startswith("batch_")
        content = (kind, parts_of(boundary, body))
    return method, url, headers, content


def parts_of(boundary: str, body: bytes) -> list[tuple[Any, ...]]:
    outer = email.message_from_bytes(
        b"Content-Type: multipart/mixed; boundary=%b\r\n\r\n" % boundary.encode() + body
    )
    (changeset,) = outer.get_payload()
    assert changeset.get_boundary().startswith("changeset_")
    found = []
    for part in changeset.get_payload():
        line, _, rest = part.get_payload().partition("\n")
        inner = email.message_from_string(rest)
        inner_headers = {n.lower(): v for n, v in inner.items() if n.lower() not in OWN}
        # Ours: the service needn't send back what it got.
        inner_headers.pop("prefer", None)
        text = inner.get_payload().strip()
        found.append((dict(part.items()), line.strip(), inner_headers, columns(text) if text else None))
    return found


def columns(text: str) -> dict[str, Any]:
    """An entity's JSON, without the types that JSON tells anyhow, and dates as instants."""
    parsed = json.loads(text)
    return {
        name: datetime.fromisoformat(value) if parsed.get(f"{name}@odata.type") == "Edm.DateTime" else value
        for name, value in parsed.items()
        if value not in ("Edm.String", "Edm.Boolean", "Edm.Int32")
    }


ODD = "%'' +&é漢😀:.~$=\"<"
CALLS = [
    ("put", {"text": "<&> \"'\r\n é漢😀 "}),
    ("put", {"text": "", "hidden_for": 0, "time_to_live": 60}),
    ("insert", {"entities": [entity("a"), entity("b", Body=b"\xff\x00", DueTime=DUE, Count=7, Yes=True)]}),
    ("insert", {"entities": [entity(ODD, Text=f"{ODD}\r\n\\", At=DUE.replace(microsecond=0), Body=b"")]}),
    ("delete", {"rows": {RowKey("p", "a"): 'W/"1"', RowKey("p", "b"): "*"}}),
    ("delete", {"rows": {RowKey(ODD, ODD): "W/\"datetime'2026-11-21T02%3A39%3A35.4572104Z'\""}}),
    ("page", {}),
    ("page", {"matching": f"PartitionKey le '{ODD}' and RowKey le 'x~'"}),
    ("page", {"matching": "RowKey ge ''", "top": 7, "select": ["PartitionKey", "DueTime"]}),
    ("page", {"token": ("1!8!cA--", "1!48!a/+=")}),
]


@pytest.mark.parametrize(("name", "given"), CALLS)
async def test_the_same_request_leaves(sides, name, given):
    left = []
    for side in ("sdk", "lean"):
        sides.recording.seen.clear()
        sides.faults.on("*").respond(418)
        with pytest.raises(CALL_ERRORS):
            await getattr(sides, f"{side}_{name}")(**given)
        (request,) = sides.recording.seen
        left.append(plain_request(request))
        assert {"authorization", "x-ms-date", "user-agent", "x-ms-client-request-id"} <= set(request[2])
    assert left[0] == left[1]
    assert len({call.operation for call in sides.faults.calls}) == 1


def test_a_value_that_no_row_of_ours_holds_is_not_written():
    for value in (1.5, 2**31, [1]):
        with pytest.raises(TypeError, match="Odd"):
            json_of(entity("a", Odd=value))
    assert b"\\ud800" in json_of(entity("a", Half="\ud800"))


# Answers of the real service


async def test_what_is_written_by_one_is_read_by_the_other(sides):
    written = [
        entity(f"{n}{ODD}", Text=f"{ODD}\r\n", Body=b"\xff", At=DUE, Count=n, No=False) for n in range(3)
    ]
    lean = await sides.lean_insert(written)
    assert await sides.sdk_page() == await sides.lean_page()
    assert await sides.lean_page() == (list(zip(written, lean, strict=True)), None)
    await sides.sdk_delete(keys(written, lean))
    sdk = await sides.sdk_insert(written)
    assert await sides.sdk_page() == await sides.lean_page() == (list(zip(written, sdk, strict=True)), None)
    await sides.lean_delete(keys(written, sdk))
    assert await sides.lean_page() == ([], None)


async def test_values_of_every_type_are_read_alike(sides):
    ticks = "2026-03-01T12:30:00.1234567Z"
    await sides.table.create_entity(
        entity(
            "a",
            Large=EntityProperty(2**40, EdmType.INT64),
            Small=-1,
            Ratio=0.5,
            Whole=2.0,
            Inf=float("inf"),
            Id=EntityProperty("0D6F2C6E-4b8a-4d3f-9a5b-7c1e2f304152", EdmType.GUID),
            When=datetime(1601, 1, 1, tzinfo=UTC),
            Ticks=EntityProperty(ticks, EdmType.DATETIME),
            Yes=True,
            Body=b"",
            Text="2026",
        )
    )
    (row,), _ = await sides.lean_page()
    assert [row] == (await sides.sdk_page())[0]
    assert row[0]["Ticks"] == datetime(2026, 3, 1, 12, 30, 0, 123_456, tzinfo=UTC)
    assert (row[0]["Large"], row[0]["Whole"], type(row[0]["Whole"])) == (2**40, 2.0, float)


async def test_pages_go_on_where_the_other_stopped(sides):
    written = sides.add(7)
    await sides.lean_insert(written)
    first, token = await sides.lean_page(top=3)
    assert (first, token) == await sides.sdk_page(top=3)
    second, token = await sides.sdk_page(top=3, token=token)
    third, end = await sides.lean_page(top=3, token=token)
    assert [row["RowKey"] for row, _ in first + second + third] == [e["RowKey"] for e in written]
    assert end is None


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_refusals_name_the_same_row(sides, position):
    rows = sides.add()
    (etag,) = await sides.lean_insert([rows[position]])
    sdk, lean = await sides.both("insert", rows)
    assert sdk == lean
    assert lean[4:6] == ("EntityAlreadyExists", position)
    others = [row for n, row in enumerate(rows) if n != position]
    etags = dict(zip((row["RowKey"] for row in others), await sides.lean_insert(others), strict=True))
    stale = keys(
        rows, [etags.get(row["RowKey"], "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\"") for row in rows]
    )
    sdk, lean = await sides.both("delete", stale)
    assert sdk == lean
    assert lean[4:6] == ("UpdateConditionNotSatisfied", position)
    await sides.lean_delete(keys([rows[position]], [etag]))
    sdk, lean = await sides.both("delete", stale)
    assert sdk == lean
    assert lean[4:6] == ("ResourceNotFound", position)


async def test_refusals_of_the_service_read_the_same(sides):
    large = entity("a", Body=b"x" * 65_540)
    for name, given in [
        ("insert", [large]),
        ("insert", [entity("a"), entity("a")]),
        ("insert", [entity("a\x07")]),
        ("delete", {RowKey("p", "absent"): "*"}),
        ("page", "RowKey gt"),
        ("put", "x" * 65_537),
    ]:
        sdk, lean = await sides.both(name, given)
        assert lean[0] == "failed"
        assert sdk == lean
    await sides.table.delete_table()
    await sides.queue.delete_queue()
    for name, given in [
        ("insert", [large]),
        ("delete", {RowKey("p", "a"): "*"}),
        ("page", None),
        ("put", "x"),
    ]:
        sdk, lean = await sides.both(name, given)
        assert lean[0] == "failed"
        assert sdk == lean


# Ways in


async def test_a_shared_access_signature_opens_all_three(sides, postdate_settings):
    until = datetime(2099, 1, 1, tzinfo=UTC)
    signature = generate_account_sas(
        sides.endpoints.account, sides.endpoints.key, "sco", "rwdlacup", until, services="tq"
    )
    places = (sides.endpoints.table, sides.endpoints.queue, sides.endpoints.blob)
    urls = "".join(f"{place.service.title()}Endpoint={place.url};" for place in places)
    name = postdate_settings.table_name
    async with Faults() as faults:
        async for signed in opened(f"{urls}SharedAccessSignature={signature}", name, faults):
            for insert, delete in (("sdk", "lean"), ("lean", "sdk")):
                rows = signed.add()
                etags = await getattr(signed, f"{insert}_insert")(rows)
                sdk, lean = await signed.both("page")
                assert sdk == lean
                assert len(lean[1][0]) == 3
                await getattr(signed, f"{delete}_delete")(keys(rows, etags))
            assert await signed.lean_put()
            assert all(call.url.count("sig=") == 1 for call in faults.calls)
            # The parts of a transaction carry none, as the SDK's.
            assert not any(b"sig=" in call.body for call in faults.calls)


class Identity:
    """Hands out a token, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked.append(scopes)
        return AccessToken("secret", 2**40)


class Silent(Recording):
    async def send(self, request: Any, **config: Any) -> Any:
        with suppress(AttributeError):
            await super().send(request, **config)
        raise ServiceResponseError("no answer")


async def test_an_identity_opens_all_three_and_only_over_https():
    left = []
    for side in ("sdk", "lean"):
        identity, transport = Identity(), Silent(None)
        common = {"credential": identity, "transport": transport}
        if side == "sdk":
            table = TableClient("https://acme.table.core.windows.net", "rows", **common)
            queue = QueueClient("https://acme.queue.core.windows.net", "orders", **common)
            sides = Sides(table, None, queue, None, None, transport, None)
        else:
            hot_table = HotTable("https://acme.table.core.windows.net", "rows", identity, transport, {})
            hot = HotQueues("https://acme.queue.core.windows.net", API_VERSION, identity, transport)
            sides = Sides(None, hot_table, SimpleNamespace(queue_name="orders"), hot, None, transport, None)
        for name in ("put", "insert", "delete"):
            with pytest.raises(ServiceResponseError):
                await getattr(sides, f"{side}_{name}")(GIVEN[name])
        left.append(
            (set(identity.asked), [(url, headers["authorization"]) for _, url, headers, _ in transport.seen])
        )
    assert left[0] == left[1]
    assert {token for _, token in left[1][1]} == {"Bearer secret"}
    plain = HotTable("http://acme.table.core.windows.net", "rows", identity, transport, {"retry_total": 0})
    transport.seen.clear()
    with pytest.raises(ServiceRequestError, match="TLS"):
        await plain.insert([b"{}"])
    assert transport.seen == []
