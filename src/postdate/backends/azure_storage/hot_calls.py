"""The calls that a message costs, without the SDK's clients: put message, transaction, page of rows.

And what a timeout of older endpoints costs beside them, once for each: its row read, its row deleted.

Requests are written and answers read by hand; between them is azure-core with what the SDK's clients use
too: their authentication policies, the retry policy of azure-core, and our transport, with its guard, its
`once` and its `Date`. What they cost beside the SDK's calls, and what else differs, is told in
docs/explain/hot-calls.md. The SDK is the oracle of tests/integration/test_azure_hot_calls.py.

Errors are azure-core's, with `error_code` and, for a transaction, `index`, as `failures` reads them. An
answer of success that can't be read leaves a write unknown: `UnreadableAnswer`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote
from uuid import uuid4
from xml.sax.saxutils import escape, unescape

import msgspec
from azure.core.exceptions import AzureError, DecodeError, HttpResponseError
from azure.core.pipeline import AsyncPipeline, PipelineRequest
from azure.core.pipeline.policies import (
    AsyncRetryPolicy,
    AzureSasCredentialPolicy,
    SansIOHTTPPolicy,
    UserAgentPolicy,
)

# Not azure.core.rest: what is made of the answer there costs 50 µs more per request.
from azure.core.pipeline.transport import AsyncHttpResponse, AsyncHttpTransport, HttpRequest
from azure.data.tables import RequestTooLargeError, TableTransactionError

# The SDK's packages build these policies inside their clients and hand them out nowhere, so they are
# imported from where they lie. All private names that we use stand here, and the packages are pinned below
# their next major version.
from azure.data.tables.aio._authentication_async import _configure_credential
from azure.storage.queue._shared.authentication import SharedKeyCredentialPolicy
from azure.storage.queue._shared.policies_async import AsyncStorageBearerTokenCredentialPolicy

from postdate.backends.azure_storage.batch_wire import (
    API_VERSION,
    FailedPart,
    address,
    code_and_message,
    deletes,
    etags_or_failure,
    inserts,
)
from postdate.clock import SystemClock
from postdate.model.keys import RowKey
from postdate.ports import Receipt

#: The SDK asks for tokens of this audience, for all three services.
_SCOPE = "https://storage.azure.com/.default"
_ONCE: dict[str, Any] = {"retry_total": 0}
_TABLE_HEADERS = {
    "x-ms-version": API_VERSION,
    "DataServiceVersion": "3.0",
    "Accept": "application/json;odata=minimalmetadata",
}
_BATCH_HEADERS = {**_TABLE_HEADERS, "MaxDataServiceVersion": "3.0;NetFx", "Accept": "application/json"}
_CODE = re.compile(r"<code>([^<]+)</code>", re.IGNORECASE)
_ID = re.compile(r"<MessageId>([^<]+)</MessageId>")
_POP_RECEIPT = re.compile(r"<PopReceipt>([^<]+)</PopReceipt>")

Pipeline = AsyncPipeline[HttpRequest, AsyncHttpResponse]
Transport = AsyncHttpTransport[Any, Any]
Token = tuple[str | None, str | None]


class UnreadableAnswer(AzureError):
    """The service said that it is done, and what else it said can't be read."""


class RefusedCall(HttpResponseError):
    """The service said no. `error_code`: its word for it, or None."""

    def __init__(self, response: AsyncHttpResponse) -> None:
        super().__init__(response=response)
        text = _text(response)
        in_json, _ = code_and_message(text)
        in_xml = _CODE.search(text)
        in_body = in_json or (in_xml[1] if in_xml else None)
        self.error_code: str | None = in_body or response.headers.get("x-ms-error-code")


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as the service's JSON has them, and where the next page begins; None: this is the last."""

    rows: list[dict[str, Any]]
    token: Token | None


class _PageJson(msgspec.Struct):
    value: list[dict[str, Any]]


_PAGE = msgspec.json.Decoder(_PageJson)


class _Stamp(SansIOHTTPPolicy[Any, Any]):
    """What each attempt has of its own: time and id; signed after it, so below the retries."""

    def __init__(self) -> None:
        self._user_agent = UserAgentPolicy(sdk_moniker="postdate").user_agent
        self._clock = SystemClock()
        self._second, self._date = 0, ""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Add them."""
        headers = request.http_request.headers
        second = int(self._clock.now().timestamp())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        headers["x-ms-date"] = self._date
        headers["x-ms-client-request-id"] = str(uuid4())
        headers["User-Agent"] = self._user_agent


class HotTable:
    """Transactions and pages of one table. Closes nothing: transport and credential belong to others."""

    def __init__(
        self, service_url: str, name: str, credential: Any, transport: Transport, retries: Mapping[str, Any]
    ) -> None:
        self._batch_url = f"{service_url}/$batch"
        self._url = f"{service_url}/{name}"
        policies = [AsyncRetryPolicy(**retries), _Stamp(), _configure_credential(credential)]
        self._pipeline: Pipeline = AsyncPipeline(transport, policies)

    async def insert(self, entities: Sequence[bytes]) -> list[str]:
        """Insert all entities, given as JSON, or none; their etags. Tried again while the service is busy."""
        etags = await self._transact(*inserts(self._url, entities), len(entities))
        if None in etags:
            raise UnreadableAnswer("an insert was answered without an etag")
        return [str(etag) for etag in etags]

    async def delete(self, rows: Mapping[RowKey, str]) -> None:
        """Delete all rows, each with its etag, or none. Never repeated: a repeat can't tell who deleted."""
        await self._transact(*deletes(self._url, rows), len(rows), **_ONCE)

    async def delete_row(self, key: RowKey, etag: str = "*") -> None:
        """Delete a row that has this etag, or whatever version; an error where it is not there.

        Never repeated where the etag is told, as `delete`.
        """
        url = f"{self._url}({address(key)})"
        headers = {**_TABLE_HEADERS, "If-Match": etag}
        options = {} if etag == "*" else _ONCE
        response = await _run(self._pipeline, _request("DELETE", url, headers), **options)
        if response.status_code != 204:
            raise RefusedCall(response)

    async def row(self, key: RowKey) -> dict[str, Any]:
        """One row, as the service's JSON has it."""
        response = await _run(self._pipeline, _request("GET", f"{self._url}({address(key)})", _TABLE_HEADERS))
        if response.status_code != 200:
            raise RefusedCall(response)
        return _row(response)

    async def page(self, matching: str, *, top: int, select: Sequence[str] = (), token: Token | None) -> Page:
        """One page of a query. It may be empty and not the last."""
        columns = ",".join(select)
        values = zip(
            ("$select", "$filter", "NextPartitionKey", "NextRowKey"),
            (columns or None, matching or None, *(token or (None, None))),
            strict=True,
        )
        more = "".join(f"&{name}={quote(value, safe='')}" for name, value in values if value is not None)
        url = f"{self._url}()?$top={top}{more}"
        response = await _run(self._pipeline, _request("GET", url, _TABLE_HEADERS))
        if response.status_code != 200:
            raise RefusedCall(response)
        headers = response.headers
        following = tuple(
            headers.get(f"x-ms-continuation-{name}") for name in ("NextPartitionKey", "NextRowKey")
        )
        return Page(_rows(response), (following[0], following[1]) if any(following) else None)

    async def _transact(
        self, content_type: str, body: bytes, operations: int, **options: Any
    ) -> list[str | None]:
        headers = {**_BATCH_HEADERS, "Content-Type": content_type}
        response = await _run(self._pipeline, _request("POST", self._batch_url, headers, body), **options)
        if response.status_code != 202:
            raise RefusedCall(response)
        outcome = etags_or_failure(response.body())
        if isinstance(outcome, FailedPart):
            raise _transaction_error(outcome)
        if len(outcome) != operations:
            raise UnreadableAnswer(f"{len(outcome)} of {operations} operations were answered")
        return outcome


class HotQueues:
    """Putting messages into the queues of one account. Closes nothing, as `HotTable`."""

    def __init__(self, service_url: str, version: str, credential: Any, transport: Transport) -> None:
        self._url = service_url
        self._headers = {
            "Content-Type": "application/xml",
            "x-ms-version": version,
            "Accept": "application/xml",
        }
        self._pipeline: Pipeline = AsyncPipeline(transport, [_Stamp(), _queue_authentication(credential)])

    async def put(self, queue: str, text: str, *, hidden_for: int, time_to_live: int) -> Receipt:
        """Append one message. Never repeated: one call could enqueue twice (fact 4)."""
        url = f"{self._url}/{queue}/messages?visibilitytimeout={hidden_for}&messagettl={time_to_live}"
        body = (
            "<?xml version='1.0' encoding='utf-8'?>\n"
            f"<QueueMessage><MessageText>{escape(text)}</MessageText></QueueMessage>"
        ).encode("utf-8", "xmlcharrefreplace")
        response = await _run(self._pipeline, _request("POST", url, self._headers, body))
        if response.status_code != 201:
            raise RefusedCall(response)
        answer = _text(response)
        native_id, pop_receipt = _ID.search(answer), _POP_RECEIPT.search(answer)
        if native_id is None or pop_receipt is None:
            raise UnreadableAnswer("a put was answered without id or pop receipt")
        return Receipt(unescape(native_id[1]), unescape(pop_receipt[1]))


def _request(method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpRequest:
    request = HttpRequest(method, url)
    # A plain one: azure-core's own, blind to case, is gone through name by name in Python at each signature.
    request.headers = dict(headers)
    if body is not None:
        request.set_bytes_body(body)
    return request


async def _run(pipeline: Pipeline, request: HttpRequest, **options: Any) -> AsyncHttpResponse:
    return (await pipeline.run(request, **options)).http_response


def _queue_authentication(credential: Any) -> Any:
    if hasattr(credential, "get_token"):
        return AsyncStorageBearerTokenCredentialPolicy(credential, _SCOPE)
    if hasattr(credential, "signature"):
        return AzureSasCredentialPolicy(credential)
    name, key = credential.named_key
    return SharedKeyCredentialPolicy(name, key)  # type: ignore[no-untyped-call] # the SDK's own, see above


def _rows(response: AsyncHttpResponse) -> list[dict[str, Any]]:
    try:
        try:
            return _PAGE.decode(response.body()).value
        except msgspec.MsgspecError:
            # The standard library also reads halves of surrogate pairs, which a row can hold.
            return msgspec.convert(json.loads(response.body()), _PageJson).value
    except (ValueError, msgspec.MsgspecError) as error:
        raise DecodeError(f"a page is no page: {error}", response=response, error=error) from error


def _row(response: AsyncHttpResponse) -> dict[str, Any]:
    try:
        # Not msgspec: a row can hold halves of surrogate pairs.
        row = json.loads(response.body())
    except ValueError as error:
        raise DecodeError(f"a row is no row: {error}", response=response, error=error) from error
    if not isinstance(row, dict):
        raise DecodeError("a row is no row", response=response)
    return row


def _text(response: AsyncHttpResponse) -> str:
    # The response's own text() would guess the encoding, and slowly.
    return response.body().decode("utf-8-sig", "replace")


def _transaction_error(failed: FailedPart) -> TableTransactionError:
    kind = RequestTooLargeError if failed.status == 413 else TableTransactionError
    error = kind(message=f"{failed.message}\nErrorCode:{failed.code}")
    error.status_code = failed.status
    error.error_code = failed.code  # type: ignore[attr-defined] # the SDK sets it so, too
    return error
