"""What each refusal means, and what people read; no service takes part."""

import json
from types import SimpleNamespace

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.data.tables import TableErrorCode

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import Refusal, code_of, outcome_unknown, refusal, translate
from postdate.errors import AccessDenied, DestinationNotFound, StorageError, StorageUnreachable

URL = "https://acme.queue.core.windows.net"
BY_KEY = Place("queue", URL, "acme", "POSTDATE_CONNECTION", by_key=True)
BY_IDENTITY = Place("table", URL.replace("queue", "table"), "acme", "POSTDATE_ACCOUNT_NAME", by_key=False)


def answer(status: int, code: str = "", *, body: str = "", header: str = "") -> HttpResponseError:
    error = HttpResponseError("the service's long text with https://x/?sig=verysecret")
    error.status_code = status
    error.response = SimpleNamespace(
        headers={"x-ms-error-code": header} if header else {}, text=lambda: body, status_code=status
    )
    if code:
        error.error_code = code
    return error


def test_the_code_is_found_wherever_it_stands():
    # fact 11: the exception of create_entity has it in the body only
    in_body = json.dumps({"odata.error": {"code": "TableBeingDeleted"}})
    assert code_of(answer(409, body=in_body)) == "TableBeingDeleted"
    assert code_of(answer(409, header="QueueBeingDeleted")) == "QueueBeingDeleted"
    assert code_of(answer(409, "LeaseLost", header="Other")) == "LeaseLost"
    enum = answer(409)
    enum.error_code = TableErrorCode.ENTITY_ALREADY_EXISTS
    assert code_of(enum) == "EntityAlreadyExists"
    for nothing in ("", "<html>", "[]", "{}", '{"odata.error": null}'):
        assert code_of(answer(409, body=nothing)) is None
    assert code_of(OSError()) is None


def test_a_bare_conflict_is_never_taken_for_something_that_exists():
    # fact 11
    bare = ResourceExistsError("exists, says the SDK")
    bare.status_code = 409
    assert refusal(bare) is Refusal.OTHER
    assert refusal(answer(409, "SomethingNew")) is Refusal.OTHER
    assert refusal(answer(204)) is Refusal.EXISTS  # create_queue on one that is there


@pytest.mark.parametrize(
    ("status", "code", "place", "said"),
    [
        (403, "KeyBasedAuthenticationNotPermitted", BY_KEY, "takes no keys"),
        (403, "AuthenticationFailed", BY_KEY, "not one of account 'acme'"),
        (403, "AuthorizationPermissionMismatch", BY_IDENTITY, "Storage Table Data Contributor"),
        (403, "AuthorizationFailure", BY_IDENTITY, "firewall"),
        (401, "InvalidAuthenticationInfo", BY_IDENTITY, "15 minutes"),
    ],
)
def test_a_refused_caller_reads_what_is_missing_and_where(status, code, place, said):
    error = translate(answer(status, code), "sending", place)
    assert isinstance(error, AccessDenied)
    assert said in str(error)
    assert place.source in str(error) or "acme" in str(error)


def test_an_identity_without_a_token_reads_how_to_sign_in():
    error = translate(ClientAuthenticationError("no credential\nlong list"), "sending", BY_IDENTITY)
    assert isinstance(error, AccessDenied)
    assert "az login" in str(error)
    assert "long list" not in str(error)
    assert not outcome_unknown(ClientAuthenticationError("no credential"))


def test_the_services_own_text_is_never_repeated():
    # It can hold URLs, and they signatures.
    for status in (400, 403, 404, 409, 413, 500):
        text = str(translate(answer(status, "Strange"), "sending", BY_KEY))
        assert "verysecret" not in text
        assert "\n" not in text


def test_what_has_no_name_of_ours_is_told_by_status_and_code():
    error = translate(answer(400, "InvalidInput"), "sending", BY_KEY)
    assert type(error) is StorageError
    assert "400 InvalidInput" in str(error)
    assert type(translate(answer(404, "QueueNotFound"), "x", BY_KEY)) is StorageError
    assert isinstance(translate(answer(404, "QueueNotFound"), "x", BY_KEY, queue="q"), DestinationNotFound)


def test_a_remote_service_without_an_answer_is_not_told_to_start_an_emulator():
    error = translate(TimeoutError(), "reading", BY_KEY, changes=False)
    assert isinstance(error, StorageUnreachable)
    assert "azurite" not in str(error)
    assert "network" in str(error)
