"""SQL of the timeout tables: the texts in each dialect, and rows as drivers give them."""

import io
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from postdate.errors import UsageError
from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout
from postdate.settings import Settings
from postdate.spark.migrating.dialects import DIALECTS, Texts
from postdate.spark.migrating.sources import SqlSource
from postdate.spark.migrating.sql_rows import key_of, timeout_of
from postdate.spark.migrating.sql_timeouts import SqlOldTimeouts, staging_name

DUE = datetime(2026, 3, 1, 7, 8, 9, 987_654, tzinfo=UTC)
NAIVE = DUE.replace(tzinfo=None)
ID = "3f0d7f3e-6a1c-4f0b-9a55-0c6a1f2b3d4e"
HEADERS = '{\r\n  "NServiceBus.MessageId": "m1"\r\n}'


def texts(name):
    dialect = DIALECTS[name]
    return Texts(dialect, dialect.source_table("Contoso.Orders", None), dialect.table("staging"))


@pytest.mark.parametrize("name", ["sqlserver", "postgresql", "mysql", "oracle"])
def test_the_table_is_that_of_the_dialect(golden, name):
    known = golden["legacy_sql_timeout"]["table_postgres" if name == "postgresql" else f"table_{name}"]
    assert DIALECTS[name].source_table("Contoso.Orders", None) == known


def test_a_prefix_and_a_schema_of_ones_own():
    assert DIALECTS["sqlserver"].source_table("x", "Old]_", "nsb") == "[nsb].[Old]]_TimeoutData]"
    assert DIALECTS["postgresql"].source_table("x", 'a"%', None) == '"public"."a""%%TimeoutData"'


PAGES = {
    "sqlserver": "SELECT [Id], [Destination], [SagaId], [State], [Time], [Headers] FROM "
    "[dbo].[Contoso_Orders_TimeoutData] WHERE ([Time] > ? OR ([Time] = ? AND [Id] > ?)) AND [Time] >= ? "
    "ORDER BY [Time], [Id] OFFSET 0 ROWS FETCH NEXT 100 ROWS ONLY",
    "mysql": "SELECT `Id`, `Destination`, `SagaId`, `State`, `Time`, `Headers` FROM "
    "`Contoso_Orders_TimeoutData` WHERE (`Time` > %s OR (`Time` = %s AND `Id` > %s)) AND `Time` >= %s "
    "ORDER BY `Time`, `Id` LIMIT 100",
    "oracle": 'SELECT "ID", "DESTINATION", "SAGAID", "STATE", "EXPIRETIME", "HEADERS" FROM "CONTOSO_ORDERS_TO" '
    'WHERE ("EXPIRETIME" > :1 OR ("EXPIRETIME" = :2 AND "ID" > :3)) AND "EXPIRETIME" >= :4 '
    'ORDER BY "EXPIRETIME", "ID" FETCH FIRST 100 ROWS ONLY',
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_timeouts(name):
    # A cut-off in another zone is the same instant: what a column without a zone holds is UTC.
    cut_off = DUE.astimezone(timezone(timedelta(hours=-9)))
    text, values = texts(name).page((NAIVE.isoformat(), ID), None, cut_off, 100)
    assert text == PAGES[name]
    assert values == (NAIVE, NAIVE, ID, NAIVE)


MOVES = {
    "sqlserver": (
        (
            "INSERT INTO [dbo].[staging] ([Id], [Destination], [SagaId], [State], [Time], [Headers], "
            "[PersistenceVersion], [Part]) SELECT [Id], [Destination], [SagaId], [State], [Time], [Headers], "
            "[PersistenceVersion], ? FROM [dbo].[Contoso_Orders_TimeoutData] WHERE [Id] IN (?, ?)"
        ),
        "DELETE FROM [dbo].[Contoso_Orders_TimeoutData] WHERE [Id] IN (?, ?)",
    ),
    "mysql": (
        (
            "INSERT INTO `staging` (`Id`, `Destination`, `SagaId`, `State`, `Time`, `Headers`, "
            "`PersistenceVersion`, `Part`) SELECT `Id`, `Destination`, `SagaId`, `State`, `Time`, `Headers`, "
            "`PersistenceVersion`, %s FROM `Contoso_Orders_TimeoutData` WHERE `Id` IN (%s, %s)"
        ),
        "DELETE FROM `Contoso_Orders_TimeoutData` WHERE `Id` IN (%s, %s)",
    ),
    "oracle": (
        (
            'INSERT INTO "STAGING" ("ID", "DESTINATION", "SAGAID", "STATE", "EXPIRETIME", "HEADERS", '
            '"PERSISTENCEVERSION", "PART") SELECT "ID", "DESTINATION", "SAGAID", "STATE", "EXPIRETIME", "HEADERS", '
            '"PERSISTENCEVERSION", :1 FROM "CONTOSO_ORDERS_TO" WHERE "ID" IN (:2, :3)'
        ),
        'DELETE FROM "CONTOSO_ORDERS_TO" WHERE "ID" IN (:1, :2)',
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_copies_every_column_and_deletes_the_same_ids(name):
    (copy, copied), (delete, deleted) = texts(name).stage(7, ["a", "b"])
    assert (copy, delete) == MOVES[name]
    assert (copied, deleted) == ((7, "a", "b"), ("a", "b"))


def test_the_staging_table_is_made_once_and_dropped_once():
    assert (
        texts("sqlserver")
        .create()[0]
        .startswith("IF OBJECT_ID(N'[dbo].[staging]') IS NULL SELECT [Id], [Destination]")
    )
    assert texts("mysql").create()[0].startswith("CREATE TABLE IF NOT EXISTS `staging` AS SELECT `Id`")
    assert '\'CREATE TABLE "STAGING" AS SELECT "ID"' in texts("oracle").create()[0]
    assert texts("sqlserver").drop()[0] == "DROP TABLE IF EXISTS [dbo].[staging]"


def test_boundaries_ask_the_database_to_count():
    text, values = texts("sqlserver").boundaries(None, 500)
    assert "ROW_NUMBER() OVER (ORDER BY [Time], [Id]) AS [n]" in text
    assert "WHERE [n] % 500 = 0" in text
    assert values == ()
    assert 'WHERE MOD("N", 500) = 0' in texts("oracle").boundaries(DUE, 500)[0]


def test_a_staging_table_has_a_name_that_every_database_takes():
    one, other = staging_name("Contoso.Orders", "nightly"), staging_name("Contoso.Billing", "nightly")
    assert one.startswith("TimeoutData_migration_")
    assert len(one) <= 30
    assert one != other


class Lob(io.StringIO):
    """A large column, as Oracle's driver gives it."""


@pytest.mark.parametrize(
    "row",
    [
        (UUID(ID), "target", UUID(int=0), b"x", NAIVE, HEADERS),
        (ID, "target", None, bytearray(b"x"), DUE.astimezone(timezone(timedelta(hours=5))), HEADERS),
        (ID, "target", str(UUID(int=0)), memoryview(b"x"), "2026-03-01 07:08:09.987654", HEADERS),
        (ID, "target", str(UUID(int=0)), io.BytesIO(b"x"), NAIVE, Lob(HEADERS)),
    ],
    ids=["psycopg", "with-a-zone", "sqlite", "oracle"],
)
def test_a_row_is_read_whatever_the_driver_makes_of_it(row):
    assert timeout_of(row, "Contoso.Orders") == LegacyTimeout(
        ID, "target", DUE, {"NServiceBus.MessageId": "m1"}, b"x", "Contoso.Orders", None
    )


def test_a_saga_and_a_time_of_seconds():
    saga = "7C1F3B52-9A40-4C43-8B7E-B3F2007A11C6"
    found = timeout_of((ID, "target", saga, None, NAIVE.replace(microsecond=0), HEADERS), "x")
    assert (found.saga_id, found.body) == (saga.lower(), b"")
    assert found.due_at == DUE.replace(microsecond=0)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (1, None, "column Destination holds no text"),
        (2, "saga", "the saga id 'saga' is empty or not a GUID"),
        (3, 7, "column State holds int, not bytes"),
        (4, None, "column Time holds no time"),
        (4, "noon", "column Time holds no time"),
        (5, "{", "column Headers is"),
        (5, None, "column Headers holds NoneType, not JSON text"),
    ],
)
def test_what_can_not_be_read_is_told(place, value, reason):
    row = [ID, "target", None, b"", NAIVE, HEADERS]
    row[place] = value
    found = timeout_of(row, "x")
    assert isinstance(found, UnreadableTimeout)
    assert found.id == ID
    assert found.reason.startswith(reason)


def test_a_key_of_a_range_is_text():
    assert key_of((NAIVE, UUID(ID))) == ("2026-03-01T07:08:09.987654", ID)
    assert DIALECTS["postgresql"].value_of("2026-03-01T07:08:09.987654") == NAIVE
    assert key_of(("2026-03-01 07:08:09", ID)) == ("2026-03-01 07:08:09", ID)


@pytest.mark.parametrize(
    "text",
    [
        "host=db password=hunter2",
        "host=db Password = hunter2",
        "postgresql://u:hunter2@db/x",
        "host=db sslpassword=hunter2",
    ],
)
def test_a_password_in_the_source_is_refused_and_not_shown(text):
    with pytest.raises(UsageError, match="would stand in plans and logs") as told:
        SqlSource("postgresql", text).check()
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (SqlSource("db2", "x"), "there is no SQL dialect 'db2'; there are sqlite, postgresql"),
        (SqlSource("sqlite"), "source sqlite: tell where the database is"),
        (SqlSource("sqlserver", "x"), "no driver for sqlserver comes with Postdate"),
        (SqlSource("sqlite", "/nowhere/old.db"), "/nowhere/old.db: there is no such file"),
        (SqlSource("postgresql", variable="NOT_SET_ANYWHERE"), "variable NOT_SET_ANYWHERE is not set"),
        (SqlSource("sqlserver", connect="nowhere:connect"), "connect 'nowhere:connect': No module"),
        (SqlSource("sqlserver", connect="io"), "connect 'io': write module:function"),
    ],
)
def test_a_source_that_can_not_be_opened_is_told_in_one_line(source, reason):
    with pytest.raises(UsageError) as told:
        SqlOldTimeouts(source, "Contoso.Orders", "one")
    assert reason in str(told.value)
    assert "\n" not in str(told.value)


def test_the_endpoints_real_name_names_its_table_not_the_escaped_one(golden):
    trap = golden["legacy_migration_to_asq"]["sqlp_escaped_name_trap"]
    assert (
        DIALECTS["sqlserver"]
        .source_table(trap["real_endpoint"], None)
        .startswith(f"[dbo].[{trap['name_listed_by_the_tool']}_")
    )
    assert Settings(endpoint=trap["real_endpoint"]).table_name == trap["table_the_endpoint_uses"]
