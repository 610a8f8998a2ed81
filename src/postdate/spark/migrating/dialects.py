"""SQL of the timeout tables of SQL persistence (nservicebus-azure, 5.2), as texts with their values. Pure.

Moving is one transaction of two statements, `INSERT … SELECT` and `DELETE` of the same ids; whoever runs it
compares what both say they did, and takes both back where they differ. So each timeout is in one table.
"""

# ruff: noqa: S608 - every name is quoted, every value is marked

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

_COLUMNS = ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion")
#: What a page and a staged page select, in this order: `sql_rows.timeout_of` reads it.
READ = 6
_PART = "Part"
Values = tuple[object, ...]
Statement = tuple[str, Values]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database spells things."""

    name: str
    open_quote: str = '"'
    close_quote: str = '"'
    #: How drivers mark a value: `?`, `%s`, or `:` and a number.
    mark: str = "?"
    schema: str | None = None
    upper: bool = False
    time: str = "Time"
    suffix: str = "TimeoutData"
    modulo: str = "MOD({0}, {1})"
    limit: str = "LIMIT {0}"
    #: Of a table made from no rows of another one: 0 the new one, 1 columns, 2 the other.
    create: str = "CREATE TABLE IF NOT EXISTS {0} AS SELECT {1} FROM {2} WHERE 1 = 0"
    drop: str = "DROP TABLE IF EXISTS {0}"
    #: Whether its driver gives and takes times as text.
    text_times: bool = False

    def quoted(self, name: str) -> str:
        """A name, whatever it holds."""
        plain = name.upper() if self.upper else name
        text = self.open_quote + plain.replace(self.close_quote, 2 * self.close_quote) + self.close_quote
        # Drivers that mark values so read each % as a mark.
        return text.replace("%", "%%") if self.mark == "%s" else text

    def table(self, name: str, schema: str | None = None) -> str:
        """A table's full name."""
        place = schema or self.schema
        return self.quoted(name) if place is None else f"{self.quoted(place)}.{self.quoted(name)}"

    def source_table(self, endpoint: str, prefix: str | None, schema: str | None = None) -> str:
        """The timeout table of an endpoint."""
        before = endpoint.replace(".", "_") + "_" if prefix is None else prefix
        return self.table(before + self.suffix, schema)

    def value_of(self, text: str) -> object:
        """A time of a `SqlRange` as the driver takes it."""
        return text if self.text_times else datetime.fromisoformat(text)

    def instant(self, when: datetime) -> object:
        """An instant as the driver takes it: UTC without a zone, whatever the zone of this host."""
        plain = when.astimezone(UTC).replace(tzinfo=None)
        return plain.isoformat(sep=" ") if self.text_times else plain


DIALECTS = {
    one.name: one
    for one in (
        Dialect("sqlite", modulo="{0} % {1}", text_times=True),
        Dialect("postgresql", mark="%s", schema="public"),
        Dialect(
            "sqlserver",
            "[",
            "]",
            schema="dbo",
            modulo="{0} % {1}",
            limit="OFFSET 0 ROWS FETCH NEXT {0} ROWS ONLY",
            create="IF OBJECT_ID(N'{0}') IS NULL SELECT {1} INTO {0} FROM {2} WHERE 1 = 0",
        ),
        Dialect("mysql", "`", "`", mark="%s"),
        Dialect(
            "oracle",
            mark=":",
            upper=True,
            time="ExpireTime",
            suffix="TO",
            limit="FETCH FIRST {0} ROWS ONLY",
            # It knows no IF [NOT] EXISTS before version 23: -955 there is one, -942 there is none.
            create="BEGIN EXECUTE IMMEDIATE 'CREATE TABLE {0} AS SELECT {1} FROM {2} WHERE 1 = 0'; "
            "EXCEPTION WHEN OTHERS THEN IF SQLCODE != -955 THEN RAISE; END IF; END;",
            drop="BEGIN EXECUTE IMMEDIATE 'DROP TABLE {0}'; "
            "EXCEPTION WHEN OTHERS THEN IF SQLCODE != -942 THEN RAISE; END IF; END;",
        ),
    )
}


@dataclass(slots=True)
class _Values:
    """Values of a statement that is being written, and the marks that stand for them."""

    dialect: Dialect
    values: list[object] = field(default_factory=list)

    def mark(self, value: object) -> str:
        self.values.append(value)
        return f":{len(self.values)}" if self.dialect.mark == ":" else self.dialect.mark

    def after(self, key: tuple[str, str]) -> str:
        time, row = self._names()
        when = self.dialect.value_of(key[0])
        later = f"{time} > {self.mark(when)}"
        return f"({later} OR ({time} = {self.mark(when)} AND {row} > {self.mark(key[1])}))"

    def up_to(self, key: tuple[str, str]) -> str:
        time, row = self._names()
        when = self.dialect.value_of(key[0])
        return (
            f"({time} < {self.mark(when)} OR ({time} = {self.mark(when)} AND {row} <= {self.mark(key[1])}))"
        )

    def among(self, ids: Sequence[str]) -> str:
        return f"{self._names()[1]} IN ({', '.join(self.mark(one) for one in ids)})"

    def _names(self) -> tuple[str, str]:
        return self.dialect.quoted(self.dialect.time), self.dialect.quoted("Id")


@dataclass(frozen=True, slots=True)
class Texts:
    """The statements on one timeout table and the staging table of a run."""

    dialect: Dialect
    source: str
    staging: str

    @property
    def _columns(self) -> str:
        names = (self.dialect.time if name == "Time" else name for name in _COLUMNS)
        return ", ".join(map(self.dialect.quoted, names))

    @property
    def _order(self) -> str:
        return f"{self.dialect.quoted(self.dialect.time)}, {self.dialect.quoted('Id')}"

    @property
    def _part(self) -> str:
        return self.dialect.quoted(_PART)

    def create(self) -> Statement:
        """Make the staging table, where there is none: the same columns, and the part."""
        return self.dialect.create.format(
            self.staging, f"{self._columns}, 0 AS {self._part}", self.source
        ), ()

    def drop(self) -> Statement:
        """Drop it, where there is one."""
        return self.dialect.drop.format(self.staging), ()

    def boundaries(self, due_from: datetime | None, rows: int) -> Statement:
        """Time and id of each so-many-th timeout, in order."""
        values = _Values(self.dialect)
        where = f"WHERE {self._from(values, due_from)}" if due_from is not None else ""
        number = self.dialect.quoted("n")
        chosen = self.dialect.modulo.format(number, rows)
        if self.dialect.mark == "%s":  # a % of the text itself
            chosen = chosen.replace(" % ", " %% ")
        numbered = f"ROW_NUMBER() OVER (ORDER BY {self._order}) AS {number}"
        inner = f"SELECT {self._order}, {numbered} FROM {self.source} {where}"
        text = f"SELECT {self._order} FROM ({inner}) numbered WHERE {chosen} = 0 ORDER BY {self._order}"
        return text, tuple(values.values)

    def page(
        self,
        after: tuple[str, str] | None,
        end: tuple[str, str] | None,
        due_from: datetime | None,
        rows: int,
    ) -> Statement:
        """The next timeouts of a range."""
        values = _Values(self.dialect)
        conditions = [values.after(after)] if after is not None else []
        conditions += [values.up_to(end)] if end is not None else []
        conditions += [self._from(values, due_from)] if due_from is not None else []
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        limit = self.dialect.limit.format(rows)
        text = f"SELECT {self._read} FROM {self.source} {where}ORDER BY {self._order} {limit}"
        return text, tuple(values.values)

    def staged_page(self, part: int, after: tuple[str, str] | None, rows: int) -> Statement:
        """The next timeouts that are staged for a part."""
        values = _Values(self.dialect)
        conditions = [f"{self._part} = {values.mark(part)}"]
        conditions += [values.after(after)] if after is not None else []
        where = " AND ".join(conditions)
        limit = self.dialect.limit.format(rows)
        text = f"SELECT {self._read} FROM {self.staging} WHERE {where} ORDER BY {self._order} {limit}"
        return text, tuple(values.values)

    def stage(self, part: int, ids: Sequence[str]) -> tuple[Statement, Statement]:
        """Move timeouts out of the manager's sight."""
        copied, deleted = _Values(self.dialect), _Values(self.dialect)
        columns, number = self._columns, copied.mark(part)
        insert = f"INSERT INTO {self.staging} ({columns}, {self._part}) SELECT {columns}, {number}"
        copy = f"{insert} FROM {self.source} WHERE {copied.among(ids)}"
        delete = f"DELETE FROM {self.source} WHERE {deleted.among(ids)}"
        return (copy, tuple(copied.values)), (delete, tuple(deleted.values))

    def give_back(self, part: int, ids: Sequence[str]) -> tuple[Statement, Statement]:
        """Move them back, every column as it was."""
        copied = _Values(self.dialect)
        insert = f"INSERT INTO {self.source} ({self._columns}) SELECT {self._columns} FROM {self.staging}"
        of_part = f"{self._part} = {copied.mark(part)}"
        copy = f"{insert} WHERE {of_part} AND {copied.among(ids)}"
        return (copy, tuple(copied.values)), self.drop_staged(part, ids)

    def drop_staged(self, part: int, ids: Sequence[str]) -> Statement:
        """Delete what is staged."""
        values = _Values(self.dialect)
        text = f"DELETE FROM {self.staging} WHERE {self._part} = {values.mark(part)} AND {values.among(ids)}"
        return text, tuple(values.values)

    def staged_in_all(self) -> Statement:
        """How many are staged."""
        return f"SELECT COUNT(*) FROM {self.staging}", ()

    def _from(self, values: _Values, due_from: datetime) -> str:
        time = self.dialect.quoted(self.dialect.time)
        return f"{time} >= {values.mark(self.dialect.instant(due_from))}"

    @property
    def _read(self) -> str:
        names = (self.dialect.time if name == "Time" else name for name in _COLUMNS[:READ])
        return ", ".join(map(self.dialect.quoted, names))
