"""The hot calls beside the SDK's: the same answers mean the same, also those that Azurite never gives."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure_hot_cases import GIVEN, Sides, ready

from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    outcome_unknown,
    translate,
)
from postdate.backends.azure_storage.rows import properties_of


@pytest.fixture
async def sides(postdate_settings) -> AsyncIterator[Sides]:
    async for made in ready(postdate_settings):
        yield made


# Answers by script


def batch(*parts: str) -> bytes:
    head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    inner = "".join(f"--changesetresponse_1\r\n{head}{part}\r\n" for part in parts)
    outer = "Content-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
    return f"--batchresponse_1\r\n{outer}{inner}--changesetresponse_1--\r\n--batchresponse_1--\r\n".encode()


def failed(status: int, code: str, message: str) -> bytes:
    error = json.dumps({"odata.error": {"code": code, "message": {"lang": "en-US", "value": message}}})
    return batch(f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n\r\n{error}\r\n")


MULTIPART = {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}
XML = {"Content-Type": "application/xml"}
DONE = 'HTTP/1.1 204 No Content\r\nETag: W/"1"\r\n\r\n'
PUT = "<QueueMessage><MessageId>1</MessageId><PopReceipt>a&amp;b</PopReceipt></QueueMessage>"
OPERATIONS = {
    "put": "queue.send",
    "insert": "table.batch_insert",
    "delete": "table.batch_delete",
    "page": "table.query",
}


async def by_script(sides: Sides, name: str, **answer: Any) -> list[tuple[Any, ...]]:
    sides.faults.on(OPERATIONS[name], times=99).respond(**answer)
    return await sides.both(name, GIVEN[name])


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    "answer",
    [
        {"status": 400, "code": "InvalidInput"},
        {"status": 400, "body": b"<html>", "headers": {"Content-Type": "text/html"}},
        {"status": 401, "code": "InvalidAuthenticationInfo"},
        {"status": 403, "code": "AuthenticationFailed"},
        {"status": 404, "code": "TableNotFound"},
        {"status": 404, "code": "QueueNotFound"},
        {"status": 409, "code": "TableBeingDeleted"},
        {"status": 409, "code": "QueueBeingDeleted"},
        {"status": 413, "code": "RequestBodyTooLarge"},
        {"status": 500, "code": "OperationTimedOut"},
        {"status": 503, "code": "ServerBusy", "headers": {"Retry-After": "0"}},
        {"status": 418, "code": "NeverHeardOf"},
        {
            "status": 404,
            "body": b"<?xml version='1.0'?><error><code>TableNotFound</code><message>m</message></error>",
            "headers": XML,
        },
    ],
    ids=lambda answer: f"{answer['status']}{answer.get('code', '')}",
)
async def test_the_same_answer_means_the_same(sides, name, answer):
    sdk, lean = await by_script(sides, name, **answer)
    assert lean[0] == "failed"
    assert sdk == lean


@pytest.mark.parametrize("name", ["insert", "delete"])
@pytest.mark.parametrize(
    "body",
    [
        failed(409, "EntityAlreadyExists", "1:there"),
        failed(409, "EntityAlreadyExists", "there, and no number"),
        failed(404, "ResourceNotFound", "99:not there"),
        failed(404, "TableNotFound", "0:no table"),
        failed(412, "UpdateConditionNotSatisfied", "1:changed"),
        failed(503, "ServerBusy", "busy"),
        batch("HTTP/1.1 500 No\r\n\r\n"),
        batch("HTTP/1.1 400 No\r\nContent-Type: text/html\r\n\r\n<html></html>\r\n"),
        batch(DONE, DONE),
        batch("neither HTTP nor anything\r\n\r\n"),
    ],
)
async def test_the_same_part_of_a_transaction_means_the_same(sides, name, body):
    sdk, lean = await by_script(sides, name, status=202, headers=MULTIPART, body=body)
    if name == "delete" or lean[0] == "failed":
        assert sdk == lean
    else:
        assert (sdk, lean) == (("answered", ['W/"1"'] * 2, 1),) * 2


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("fault", ["lose_answer", "break_connection", "time_out", "refuse_connection"])
async def test_the_same_silence_means_the_same(sides, name, fault):
    getattr(sides.faults.on(OPERATIONS[name], times=99), fault)()
    sdk, lean = await sides.both(name, GIVEN[name])
    assert lean[0] == "failed"
    assert sdk == lean


# Where we do better than the SDK


@pytest.mark.parametrize(
    ("name", "body"),
    [
        # The SDK lets ValueError, AttributeError, IndexError and others out, or believes it.
        *[("insert", body) for body in (b"", b"garbage", batch(), batch(DONE), batch(DONE, DONE)[:-180])],
        ("insert", batch("HTTP/1.1 204 No Content\r\n\r\n", DONE)),
        *[("delete", body) for body in (b"", b"garbage", batch(), batch(DONE), batch(DONE, DONE, DONE))],
        *[("put", body) for body in (b"", b"<a", b"<a/>", PUT.replace("PopReceipt", "Other").encode())],
    ],
)
async def test_a_success_that_can_not_be_read_leaves_a_write_unknown(sides, name, body):
    status = 201 if name == "put" else 202
    sides.faults.on(OPERATIONS[name], times=9).respond(
        status, body=body, headers=XML if name == "put" else MULTIPART
    )
    with pytest.raises(CALL_ERRORS) as caught:
        await getattr(sides, f"lean_{name}")(GIVEN[name])
    assert outcome_unknown(caught.value)
    assert sides.faults.count("*") == 1


async def test_a_transaction_too_large_is_told_so_from_inside_the_answer_too(sides):
    sdk, lean = await by_script(
        sides, "insert", status=202, headers=MULTIPART, body=failed(413, "RequestBodyTooLarge", "0:large")
    )
    assert (str(sdk[3]), str(lean[3])) == ("Refusal.OTHER", "Refusal.TOO_LARGE")


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"[]", b'{"value":[1]}', b'{"value":null}'])
async def test_a_page_that_can_not_be_read_is_an_error_of_the_service(sides, body):
    sides.faults.on("table.query").respond(200, body=body)
    with pytest.raises(CALL_ERRORS) as caught:
        await sides.lean_page()
    assert "200" in str(translate(caught.value, "reading", sides.endpoints.table, changes=False))


async def test_rows_that_are_odd_are_read_as_the_sdk_reads_them_or_kept_as_text(sides):
    row = '{"PartitionKey":"p","RowKey":"r","A":"\\ud800","Timestamp":"2026-03-01T12:30:00.1234567Z"}'
    answer = ("\ufeff" + f'{{"value":[{row}]}}').encode()
    sdk, lean = await by_script(sides, "page", status=200, body=answer)
    assert lean[0] == "answered"
    assert sdk == lean
    odd = {"PartitionKey": "p", "RowKey": "r", "odata.etag": "e", "D@odata.type": "Edm.DateTime", "D": "soon"}
    assert properties_of(odd) == ({"PartitionKey": "p", "RowKey": "r", "D": "soon"}, "e")
    assert properties_of({"X@odata.type": "Edm.Int64"}) == ({}, "")


async def test_a_put_is_read_with_and_without_a_byte_order_mark(sides):
    for mark in ("", "\ufeff"):
        body = f"{mark}<?xml version='1.0'?><QueueMessagesList>{PUT}</QueueMessagesList>".encode()
        sides.faults.on("queue.send", times=2).respond(201, body=body, headers=XML)
        assert await sides.both("put", "x") == [("answered", ("1", "a&b"), 1)] * 2
