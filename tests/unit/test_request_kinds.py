"""What a request does is told from its method, its URL and its lease action."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples, queue_names

from postdate.model.requests import (
    UNKNOWN,
    Outcome,
    RequestCounter,
    RequestKind,
    Service,
    blob_operation,
    by_operation,
    outcome_of,
    queue_operation,
    table_operation,
)
from postdate.settings import load_prices

TABLE = "delays0123"
#: An account of Azure's, and one of the emulator's, whose name is part of the path.
BASES = ["https://contoso.core.windows.net", "http://127.0.0.1:10001/devstoreaccount1"]
bases = st.sampled_from(BASES)
signatures = st.sampled_from(["", "sv=2020-12-06&ss=bqt&srt=sco&sp=rwdlacu&sig=a%2Bb%3D"])


def url(base, path, query="", signature=""):
    more = "&".join(part for part in (query, signature) if part)
    return f"{base}/{path}?{more}" if more else f"{base}/{path}"


TABLE_REQUESTS = [
    ("POST", "Tables", "", "create table"),
    ("GET", "Tables", "", "list tables"),
    ("DELETE", f"Tables('{TABLE}')", "", "delete table"),
    ("POST", "$batch", "", "batch"),
    ("GET", f"{TABLE}()", "$top=1000&$filter=PartitionKey%20le%20%272026%27", "query"),
    ("GET", f"{TABLE}()", "", "query"),
    ("POST", TABLE, "", "insert"),
    ("GET", f"{TABLE}(PartitionKey='20260301',RowKey='x')", "$select=PartitionKey%2CRowKey", "get"),
    ("PATCH", f"{TABLE}(PartitionKey='20260301',RowKey='x')", "", "merge"),
    ("PUT", f"{TABLE}(PartitionKey='20260301',RowKey='%28%29')", "", "replace"),
    ("DELETE", f"{TABLE}(PartitionKey='20260301',RowKey='x')", "", "delete"),
    ("OPTIONS", TABLE, "", UNKNOWN),
]
QUEUE_REQUESTS = [
    ("PUT", "{q}", "", "create queue"),
    ("DELETE", "{q}", "", "delete queue"),
    ("GET", "{q}", "comp=metadata", "get metadata"),
    ("PUT", "{q}", "comp=metadata", "set metadata"),
    ("GET", "", "comp=list&maxresults=5000", "list queues"),
    ("GET", "", "comp=stats&restype=service", UNKNOWN),
    ("POST", "{q}/messages", "visibilitytimeout=7&messagettl=-1", "put message"),
    ("GET", "{q}/messages", "numofmessages=32&visibilitytimeout=30", "get messages"),
    ("GET", "{q}/messages", "numofmessages=1&peekonly=true", "peek messages"),
    ("DELETE", "{q}/messages", "", "clear messages"),
    ("DELETE", "{q}/messages/4a-b", "popreceipt=AgAAAAMAAAA%3D", "delete message"),
    ("PUT", "{q}/messages/4a-b", "popreceipt=AgAAAAMAAAA%3D&visibilitytimeout=0", "update message"),
    ("HEAD", "{q}", "", UNKNOWN),
]
BLOB_REQUESTS = [
    ("PUT", "c", "comp=lease&restype=container", "acquire", "acquire lease"),
    ("PUT", "c", "comp=lease&restype=container", "renew", "renew lease"),
    ("PUT", "c/leader.json", "comp=lease", "release", "release lease"),
    ("PUT", "c", "comp=lease&restype=container", "break", "break lease"),
    ("PUT", "c", "restype=container", None, "create container"),
    ("DELETE", "c", "restype=container", None, "delete container"),
    ("GET", "c", "restype=container", None, "get container properties"),
    ("HEAD", "c", "restype=container", None, "get container properties"),
    ("GET", "c", "restype=container&comp=list&prefix=payloads%2F&include=metadata", None, "list blobs"),
    ("GET", "", "comp=list", None, "list containers"),
    ("PUT", "c/payloads/x", "", None, "put blob"),
    ("PUT", "c/payloads/x", "comp=block&blockid=AAA", None, "put block"),
    ("PUT", "c/payloads/x", "comp=blocklist", None, "put block list"),
    ("PUT", "c/log/20260301/11-p.jsonl", "comp=appendblock", None, "append block"),
    ("PUT", "c/payloads/x", "comp=metadata", None, "set metadata"),
    ("GET", "c/leader.json", "", None, "get blob"),
    ("HEAD", "c/payloads/x", "", None, "get properties"),
    ("DELETE", "c/payloads/x", "", None, "delete blob"),
    ("PUT", "c/payloads/x", "comp=tier", None, UNKNOWN),
    ("POST", "", "comp=batch", None, UNKNOWN),
]


@pytest.mark.parametrize(("method", "path", "query", "operation"), TABLE_REQUESTS)
@pytest.mark.parametrize("base", BASES)
def test_requests_to_the_table_service(base, method, path, query, operation):
    assert table_operation(method, url(base, path, query)) == operation


@examples(300)
@given(bases, signatures, queue_names, st.sampled_from(QUEUE_REQUESTS))
def test_requests_to_the_queue_service_whatever_the_account_signature_and_queue(base, signature, queue, one):
    method, path, query, operation = one
    assert queue_operation(method, url(base, path.format(q=queue), query, signature)) == operation


@examples(300)
@given(bases, signatures, st.sampled_from(BLOB_REQUESTS))
def test_requests_to_the_blob_service_whatever_the_account_and_signature(base, signature, one):
    method, path, query, action, operation = one
    assert blob_operation(method, url(base, path, query, signature), action) == operation


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [("PUT", "messages", "create queue"), ("POST", "messages/messages", "put message")],
)
def test_a_queue_may_be_called_messages(method, path, operation):
    assert queue_operation(method, url(BASES[1], path)) == operation


def test_every_operation_that_can_be_told_has_a_price():
    told = {
        Service.TABLE: {one[-1] for one in TABLE_REQUESTS},
        Service.QUEUE: {one[-1] for one in QUEUE_REQUESTS},
        Service.BLOB: {one[-1] for one in BLOB_REQUESTS},
    }
    priced = load_prices(None).meters
    kinds = {RequestKind(service, name) for service, names in told.items() for name in names - {UNKNOWN}}
    assert kinds <= set(priced)
    # A lease can be changed, by others; its action is taken as it comes.
    assert set(priced) - kinds == {RequestKind(Service.BLOB, "change lease")}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.OK),
        (204, Outcome.OK),
        (304, Outcome.OK),
        (404, Outcome.REFUSED),
        (412, Outcome.REFUSED),
        (429, Outcome.THROTTLED),
        (500, Outcome.FAILED),
        (503, Outcome.THROTTLED),
    ],
)
def test_how_an_attempt_ended_is_told_from_its_status(status, outcome):
    assert outcome_of(status) is outcome


def test_counts_only_grow_and_what_was_handed_out_stays_as_it_was():
    counter = RequestCounter()
    query, renew = RequestKind(Service.TABLE, "query"), RequestKind(Service.BLOB, "renew lease")
    counter.add(query, Outcome.OK)
    before = counter.counts()
    counter.add(query, Outcome.OK)
    counter.add(query, Outcome.THROTTLED)
    counter.add(renew, Outcome.REFUSED)
    assert by_operation(before) == {"table query": {"ok": 1}}
    assert by_operation(counter.counts()) == {
        "blob renew lease": {"refused": 1},
        "table query": {"ok": 2, "throttled": 1},
    }


def test_a_kind_is_read_back_from_its_text():
    kind = RequestKind(Service.BLOB, "get container properties")
    assert str(kind) == "blob get container properties"
    assert RequestKind.parse(str(kind)) == kind
