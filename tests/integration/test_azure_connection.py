"""Ways into an account, and what people read when one is wrong."""

import asyncio
import base64
import socket
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp.http_writer import StreamWriter
from azure_cases import Rig, connection_of, delayed, rig_for
from pydantic import SecretStr

from postdate.backends.azure_storage import open_backend
from postdate.backends.azure_storage.connection import DEVELOPMENT_KEY, endpoints_of
from postdate.backends.azure_storage.transport import open_session
from postdate.clock import StorageClock, SystemClock
from postdate.errors import AccessDenied, ConfigurationError, StorageUnreachable
from postdate.local import Azurite
from postdate.model.keys import row_key
from postdate.settings import Account, Settings

KEY = base64.b64encode(b"a secret that nobody may read").decode()
SAS = "sv=2024-01-01&sig=verysecret"


def string(text: str) -> Account:
    return Account("POSTDATE_CONNECTION", connection_string=SecretStr(text))


@pytest.fixture
async def rig(postdate_settings):
    async with rig_for(postdate_settings) as made:
        yield made


def changed(settings: Settings, old: str, new: str) -> Settings:
    return settings.model_copy(update={"connection": SecretStr(connection_of(settings).replace(old, new))})


# Reading settings


@pytest.mark.parametrize(
    "text",
    ["UseDevelopmentStorage=true", "usedevelopmentstorage=TRUE;", " UseDevelopmentStorage=True; "],
)
def test_the_development_account_in_any_spelling(text):
    endpoints = endpoints_of(string(text))
    assert endpoints.table.url == "http://127.0.0.1:10002/devstoreaccount1"
    assert endpoints.queue.url == "http://127.0.0.1:10001/devstoreaccount1"
    assert endpoints.blob.url == "http://127.0.0.1:10000/devstoreaccount1"
    assert (endpoints.account, endpoints.key) == ("devstoreaccount1", DEVELOPMENT_KEY)


def test_an_account_by_name_and_key():
    endpoints = endpoints_of(
        string(f"accountname=acme;ACCOUNTKEY={KEY};EndpointSuffix=core.chinacloudapi.cn")
    )
    assert endpoints.queue.url == "https://acme.queue.core.chinacloudapi.cn"
    assert endpoints_of(string(f"AccountName=acme;AccountKey={KEY}")).blob.url == (
        "https://acme.blob.core.windows.net"
    )


def test_an_account_by_signature():
    text = f"SharedAccessSignature=?{SAS};" + ";".join(
        f"{s.title()}Endpoint=https://acme.{s}.core.windows.net/" for s in ("table", "queue", "blob")
    )
    endpoints = endpoints_of(string(text))
    assert (endpoints.account, endpoints.sas, endpoints.key) == ("acme", SAS, None)
    assert endpoints.table.url == "https://acme.table.core.windows.net"


def test_an_account_by_identity():
    urls = {f"{s}_url": f"https://acme.{s}.core.windows.net" for s in ("table", "queue", "blob")}
    endpoints = endpoints_of(Account("POSTDATE_ACCOUNT_NAME", client_id="me", **urls))
    assert (endpoints.account, endpoints.client_id) == ("acme", "me")
    assert endpoints.key is None
    assert not endpoints.table.by_key
    with pytest.raises(ConfigurationError, match="https"):
        endpoints_of(Account("X", **{**urls, "table_url": "http://127.0.0.1:10002/acme"}))
    with pytest.raises(ConfigurationError, match="queue"):
        endpoints_of(Account("X", **{**urls, "queue_url": None}))


@pytest.mark.parametrize("port", [10002, 12345])
def test_localhost_is_no_cosmos_db(port):
    # fact 12
    text = f"AccountName=a;AccountKey={KEY};" + "".join(
        f"{s}Endpoint=http://localhost:{port}/a;" for s in ("Table", "Queue", "Blob")
    )
    endpoints = endpoints_of(string(text))
    host = "localhost" if port == 10002 else "127.0.0.1"
    assert endpoints.table.url == f"http://{host}:{port}/a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a connection string"),
        ("nonsense", "not a connection string"),
        (f"AccountName=acme;{KEY}", "neither AccountKey nor"),
        ("AccountName=acme", "neither AccountKey nor"),
        (f"AccountKey={KEY}", "no AccountName"),
        (f"AccountName=acme;AccountKey={KEY[:-3]}", "not base64"),
        (f"SharedAccessSignature={SAS}", "names no account"),
        (f"AccountName=acme;AccountKey={KEY};TableEndpoint=acme", "URL"),
        (f"AccountName=acme;AccountKey={KEY};TableEndpoint=http://u:{KEY}@h/", "URL"),
        (f"AccountName=acme;AccountKey={KEY};DefaultEndpointsProtocol=ftp", "URL"),
        (f"AccountName=acme;AccountKey={KEY};QueueEndpoint=http://[::1/", "URL"),
    ],
)
def test_a_broken_connection_string_is_told_in_one_line_without_repeating_it(text, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        endpoints_of(string(text))
    assert "POSTDATE_CONNECTION" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert KEY[:8] not in str(caught.value)
    assert "verysecret" not in str(caught.value)


async def test_secrets_show_nowhere(rig, postdate_settings):
    secret = DEVELOPMENT_KEY[:20]
    endpoints = rig.backend._own.endpoints
    for text in (repr(endpoints), str(rig.backend.description), repr(rig.backend.__dict__)):
        assert secret not in text
    assert "devstoreaccount1" in rig.backend.description["account"]


# Getting no answer, or a no


async def test_a_wrong_key_is_told_with_the_setting_and_the_account(postdate_settings):
    key = connection_of(postdate_settings).partition("AccountKey=")[2].partition(";")[0]
    async with rig_for(changed(postdate_settings, key, KEY), provisioned=False) as rig:
        calls = [
            rig.backend.store.add([delayed()]),
            rig.backend.store.add([delayed(1), delayed(2)]),
            rig.backend.store.next_due(),
            rig.backend.sender.send("orders", "x"),
            rig.backend.sender.names(),
            rig.backend.lease.acquire("me", 15, 0.0),
            rig.backend.payloads.get("a"),
        ]
        for call in calls:
            with pytest.raises(AccessDenied, match="POSTDATE_CONNECTION") as caught:
                await call
            assert "devstoreaccount1" in str(caught.value)
            assert caught.value.__cause__ is not None
            assert KEY not in f"{caught.value!r}{caught.value.__cause__!r}"
        reached = await rig.backend.reach()
        assert {name: type(error) for name, error in reached.items()} == dict.fromkeys(
            ("table", "blob", "queue"), AccessDenied
        )


async def test_a_refused_port_is_told_with_address_and_way_out(postdate_settings):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = reserved.getsockname()[1]
        down = postdate_settings.model_copy(
            update={
                "connection": SecretStr(
                    f"AccountName=acme;AccountKey={KEY};"
                    + "".join(
                        f"{s}Endpoint=http://127.0.0.1:{port}/acme;" for s in ("Table", "Queue", "Blob")
                    )
                )
            }
        )
        async with rig_for(down, provisioned=False) as rig:
            for call in (
                rig.backend.store.next_due(),
                rig.backend.store.add([delayed()]),
                rig.backend.sender.send("orders", "x"),
                rig.backend.lease.acquire("me", 15, 0.0),
            ):
                with pytest.raises(StorageUnreachable, match="postdate azurite") as caught:
                    await call
                assert f"http://127.0.0.1:{port}" in str(caught.value)
            reached = await rig.backend.reach()
            assert all(isinstance(error, StorageUnreachable) for error in reached.values())


async def test_a_name_that_no_server_has_is_unreachable_and_not_unknown(postdate_settings):
    elsewhere = postdate_settings.model_copy(
        update={"connection": SecretStr(f"AccountName=acme;AccountKey={KEY};EndpointSuffix=invalid")}
    )
    async with rig_for(elsewhere, provisioned=False) as rig:
        with pytest.raises(StorageUnreachable, match="account's name"):
            await rig.backend.sender.send("orders", "x")


# One session


async def test_what_is_missing_has_been_reached_all_the_same(postdate_settings):
    async with rig_for(postdate_settings, provisioned=False) as rig:
        assert await rig.backend.reach() == {"table": None, "blob": None, "queue": None}


async def test_every_answer_teaches_the_clock_and_every_attempt_counts(postdate_settings, monkeypatch):
    async with rig_for(postdate_settings, provisioned=False) as rig:
        seen: list[datetime] = []
        observe = rig.clock.observe

        def noting(date, *, sent, received):
            assert sent <= received
            seen.append(date)
            observe(date, sent=sent, received=received)

        monkeypatch.setattr(rig.clock, "observe", noting)
        assert rig.clock.uncertainty is None
        await rig.backend.store.create()
        await rig.backend.sender.names()
        await rig.backend.lease.create()
        assert len(seen) == len(rig.faults.calls) == 3
        assert all(date.tzinfo is UTC for date in seen)
        # Answers that are not the service's teach nothing, and errors of the service do.
        rig.faults.on("table.query").respond(503, "ServerBusy")
        await rig.backend.store.next_due()
        assert len(seen) == 4
        assert await rig.backend.store.get(row_key(seen[0], "0" * 32)) is None
        assert len(seen) == 5
        assert rig.clock.uncertainty is not None
        assert rig.clock.uncertainty <= 1.1


async def test_netrc_and_proxies_of_the_environment_are_not_looked_at(
    postdate_settings, monkeypatch, tmp_path
):
    # fact 1: with them each request costs two thread hops, and netrc breaks the signature
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password something\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with rig_for(postdate_settings) as rig:
        assert await rig.backend.store.next_due() is None


async def test_the_guard_is_a_part_of_every_request_that_aiohttp_writes():
    # GuardedRequest overrides methods of aiohttp's; this fails where aiohttp stops calling them.
    session = open_session()
    assert session._request_class.__mro__[1] is aiohttp.ClientRequest
    assert session._request_class.send is not aiohttp.ClientRequest.send
    assert session._request_class.write_bytes is not aiohttp.ClientRequest.write_bytes
    assert session.trust_env is False
    await session.close()


async def test_nothing_happens_between_the_guard_and_the_first_byte(rig, monkeypatch):
    # On a busy loop a turn takes milliseconds: time enough to be frozen in.
    happened = []

    def guard():
        happened.append("asked")
        asyncio.get_running_loop().call_soon(happened.append, "a turn of the loop")
        return True

    for name in ("_write", "_writelines"):
        write = getattr(StreamWriter, name)

        def noting(writer, chunks, write=write):
            happened.append("written")
            write(writer, chunks)

        monkeypatch.setattr(StreamWriter, name, noting)
    await rig.backend.sender.create("guarded")
    happened.clear()
    await rig.backend.sender.send("guarded", "x", guard=guard)
    written = happened.index("written")
    assert happened[written - 1] == "asked"


async def test_closing_twice_is_harmless_and_leaves_nothing_open(postdate_settings):
    backend = await open_backend(postdate_settings, StorageClock(SystemClock()))
    await backend.store.create()
    await backend.close()
    await backend.close()
    assert backend._session.closed


async def test_an_identity_is_made_once_per_account_and_closed(postdate_settings):
    by_name = postdate_settings.model_copy(
        update={"connection": None, "account_name": "acme", "aliases": {"b": SecretStr("other")}}
    )
    backend = await open_backend(by_name, StorageClock(SystemClock()))
    assert len(backend._credentials._tokens) == 1
    assert "by identity" in backend.description["account"]
    await backend.close()
    assert not backend._credentials._tokens


async def test_the_sdks_own_log_is_never_written(rig, caplog):
    with caplog.at_level(0):
        await rig.backend.store.add([delayed(1), delayed(2)])
        await rig.backend.sender.names()
    assert [record.name for record in caplog.records if "http_logging" in record.name] == []


# Other services


@pytest.fixture(scope="module")
def strict_azurite():
    """One that serves only what it knows, with a second account."""
    with Azurite(skip_api_version_check=False, accounts=("second",), in_memory=True) as running:
        yield running


@pytest.fixture
def two_accounts(strict_azurite, postdate_settings):
    return postdate_settings.model_copy(
        update={
            "connection": SecretStr(strict_azurite.connection_string),
            "aliases": {"Other": SecretStr(strict_azurite.connection_string_for("second"))},
        }
    )


async def test_an_azurite_that_checks_versions_serves_us(two_accounts):
    # fact 19
    async with rig_for(two_accounts) as rig:
        assert await rig.backend.lease.acquire("me", 15, 0.0) == 1
        await rig.backend.sender.create("orders")
        await rig.backend.sender.send("orders", "x")
        assert len(await rig.backend.receiver.receive("orders", count=1, visibility_s=1)) == 1


async def test_an_alias_is_another_account_in_any_case(two_accounts):
    async with rig_for(two_accounts, provisioned=False) as rig:
        sender = rig.backend.sender
        assert await sender.create("over-there@OTHER") is True
        assert "over-there" not in await sender.names()
        assert "over-there" in await sender.names("other")
        receipt = await sender.send("over-there@other", "x", hidden_for=60)
        assert await sender.withdraw("over-there@Other", receipt) is True
        await sender.send("over-there@other", "y")
        (message,) = await rig.backend.receiver.receive("over-there@other", count=9, visibility_s=5)
        assert await rig.backend.receiver.ack(message) is True
        assert set(await rig.backend.reach()) == {"table", "blob", "queue", "queue@other"}
        assert "second" in rig.backend.description["alias other"]


async def test_another_accounts_clock_says_nothing_about_ours(two_accounts):
    async with rig_for(two_accounts, provisioned=False) as rig:
        await rig.backend.sender.names("other")
        assert rig.clock.uncertainty is None


async def test_an_emulator_that_is_too_old_is_told_with_the_way_out(rig: Rig):
    rig.faults.on("queue.list").respond(400, "InvalidHeaderValue")
    with pytest.raises(Exception, match="postdate azurite"):
        await rig.backend.sender.names()


def test_a_place_tells_local_from_remote():
    endpoints = endpoints_of(string("UseDevelopmentStorage=true"))
    assert endpoints.table.is_local
    assert not replace(endpoints.table, url="https://acme.table.core.windows.net").is_local
