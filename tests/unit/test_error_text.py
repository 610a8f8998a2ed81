"""What stands of an error in logs and in the error queue: one line, cut, no secrets."""

import base64

import pytest
from receiver_cases import always_failing, open_scene

from postdate.events import DelayedRetryAsked, ImmediateRetryAsked, MessageFailed
from postdate.model import headers as h
from postdate.model.error_text import line_of, without_secrets

KEY = base64.b64encode(bytes(range(64))).decode()
SECRETS = {
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net": KEY,
    "Endpoint=sb://a/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0": "c2VjcmV0",
    "GET https://a.queue.core.windows.net/q?sv=2024-01-01&sig=aBc%2Fd%3D&se=2026 said 403": "aBc%2Fd%3D",
    "SharedAccessSignature=sv=2024&sig=zzz9": "zzz9",
    "could not connect to postgresql://reader:hunter2@db:5432/x": "hunter2",
    "redis://:hunter2@cache": "hunter2",
    'login failed: {"user": "me", "password": "hunter2 and more"}': "hunter2",
    "connect(host='db', password='hunter2')": "hunter2",
    "DB_PASSWORD=hunter2 is wrong": "hunter2",
    "Server=db;User Id=sa;Pwd=hunter2;": "hunter2",
    "client_secret: 8Q~secret": "8Q~secret",
    "headers: {'x-api-key': 'k-1234'}": "k-1234",
    "Authorization: Bearer abcdef0123456789": "abcdef0123456789",
    "Authorization: SharedKey account:c2lnbmVk=": "c2lnbmVk",
    "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_1 is old": "eyJhbGciOiJIUzI1NiJ9",
    f"the key {KEY} is not accepted": KEY,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": "MIIE",
}
HARMLESS = [
    "row 2026112112 | 4f does not exist (PartitionKey=2026112112, RowKey=4f)",
    "unexpected token: } at line 3",
    "Basic authentication is off",
    "key 'order' is missing",
    "https://a.queue.core.windows.net/orders?comp=metadata said 404 at 12:30:01",
    "exit code=404; signature=(int, str)",
    "the password was not given",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS.items())
def test_a_secret_is_left_out_and_the_rest_stays(text, secret):
    shown = without_secrets(text)
    assert secret not in shown
    assert "…" in shown
    assert shown.split("…")[0] == text[: len(shown.split("…")[0])]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert without_secrets(text) == text


def test_a_line_is_the_first_one_and_is_cut():
    assert line_of(ValueError("one\ntwo")) == "ValueError: one"
    assert line_of(ValueError()) == "ValueError"
    line = line_of(ValueError("x" * 5_000))
    assert line == f"ValueError: {'x' * 1_000} …"


def test_a_secret_at_the_cut_is_left_out():
    assert "hunter2" not in line_of(ValueError("x" * 980 + " password=" + "hunter2" * 100))


async def test_a_secret_in_a_handlers_error_reaches_neither_records_nor_the_error_queue():
    async with open_scene() as scene:
        secret = "hunter2"
        error = RuntimeError(f"postgresql://reader:{secret}@db refused")
        error.__cause__ = OSError(f"password={secret}")
        error.add_note(f"AccountKey={secret};")
        endpoint = always_failing(scene.endpoint(delayed_retries=1), error, [])
        await scene.put()
        await scene.run_for(endpoint, seconds=30)
        (copy,) = scene.messages()
        assert copy.headers[h.EXCEPTION_MESSAGE] == "postgresql://reader:…@db refused"
        assert "OSError: password=…" in copy.headers[h.STACK_TRACE]
        assert secret not in str(copy.headers)
        kinds = ImmediateRetryAsked, DelayedRetryAsked, MessageFailed
        assert all(scene.log.of(kind) for kind in kinds)
        assert secret not in repr(scene.log.events)
