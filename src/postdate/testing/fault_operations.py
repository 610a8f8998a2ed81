"""What a request to Azure Storage does, told from the request alone."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit


def operation_of(method: str, url: str, headers: Any, body: bytes = b"") -> str:
    """What a request does.

    table.   create drop insert get merge replace delete query batch_insert batch_delete
    queue.   create drop look list send receive peek clear delete_message update_message
    lease.   acquire renew release break change
    blob.    put get look delete set_metadata list       container.   create drop look
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if any(name.lower() == "dataserviceversion" for name in headers):
        return "table." + _table_operation(method, parts.path, body)
    action = headers.get("x-ms-lease-action")
    if action:
        return f"lease.{action}"
    if "/messages" in parts.path:
        return "queue." + _message_operation(method, parts.path, query)
    if query.get("comp") == "list":
        return "blob.list" if "restype" in query else "queue.list"
    if headers.get("x-ms-blob-type"):
        return "blob.put"
    return _resource_operation(method, parts.path, query)


def _table_operation(method: str, path: str, body: bytes) -> str:
    if path.endswith("/$batch"):
        return "batch_delete" if b"\nDELETE " in body else "batch_insert"
    if path.endswith("/Tables"):
        return "create" if method == "POST" else "list"
    if "/Tables(" in path:
        return "drop"
    if path.endswith("()"):
        return "query"
    names = {"POST": "insert", "GET": "get", "PATCH": "merge", "PUT": "replace", "DELETE": "delete"}
    return names.get(method, method.lower())


def _message_operation(method: str, path: str, query: dict[str, str]) -> str:
    if path.endswith("/messages"):
        if method == "GET":
            return "peek" if "peekonly" in query else "receive"
        return "send" if method == "POST" else "clear"
    return "delete_message" if method == "DELETE" else "update_message"


def _resource_operation(method: str, path: str, query: dict[str, str]) -> str:
    # Our blobs are leader.json and payloads/…; no queue's name has a dot or a slash.
    if "/payloads/" in path or path.endswith(".json"):
        names = {"GET": "get", "HEAD": "look", "DELETE": "delete", "PUT": "set_metadata"}
        return f"blob.{names.get(method, method.lower())}"
    names = {"PUT": "create", "DELETE": "drop"}
    what = "container" if query.get("restype") == "container" else "queue"
    return f"{what}.{names.get(method, 'look')}"
