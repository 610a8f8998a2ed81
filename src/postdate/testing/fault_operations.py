"""What a request to Azure Storage does, told from the request alone."""

import re
from typing import Any

from postdate.model.requests import blob_operation, queue_operation, table_operation

_OWN_BLOB = re.compile(r"/payloads/|\.json$|/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_TABLE = {"create table": "create", "delete table": "drop", "list tables": "list"}
_QUEUE = {
    "create queue": "create",
    "delete queue": "drop",
    "get metadata": "look",
    "list queues": "list",
    "put message": "send",
    "get messages": "receive",
    "peek messages": "peek",
    "clear messages": "clear",
    "delete message": "delete_message",
    "update message": "update_message",
}
_BLOB = {
    "put blob": "blob.put",
    "put block": "blob.put",
    "put block list": "blob.put",
    "get blob": "blob.get",
    "get properties": "blob.look",
    "delete blob": "blob.delete",
    "set metadata": "blob.set_metadata",
    "list blobs": "blob.list",
    "create container": "container.create",
    "delete container": "container.drop",
    "get container properties": "container.look",
}


def operation_of(method: str, url: str, headers: Any, body: bytes = b"") -> str:
    """What a request does.

    table.   create drop list insert get merge replace delete query batch_insert batch_delete
    queue.   create drop look list send receive peek clear delete_message update_message
    lease.   acquire renew release break change
    blob.    put get look delete set_metadata list       container.   create drop look
    """
    if any(name.lower() == "dataserviceversion" for name in headers):
        operation = table_operation(method, url)
        if operation == "batch":
            return "table.batch_delete" if b"\nDELETE " in body else "table.batch_insert"
        return f"table.{_TABLE.get(operation, operation)}"
    action = headers.get("x-ms-lease-action")
    if action:
        return f"lease.{action}"
    if headers.get("x-ms-blob-type") or _is_of_blobs(url):
        operation = blob_operation(method, url, None)
        return _BLOB.get(operation, f"blob.{operation}")
    operation = queue_operation(method, url)
    return f"queue.{_QUEUE.get(operation, operation)}"


def _is_of_blobs(url: str) -> bool:
    path, _, query = url.partition("?")
    if "restype=container" in query:
        return True
    # Our blobs are leader.json, payloads/… and the GUIDs of timeouts; no queue has such a name and path.
    return "/messages" not in path and bool(_OWN_BLOB.search(path))
