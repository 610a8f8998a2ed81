"""Where old timeouts come from: records that travel in plans, so no secret stands in them."""

from datetime import UTC, datetime, timedelta

import msgspec

from postdate.errors import UsageError
from postdate.legacy.ground import Selection
from postdate.settings import variable
from postdate.spark.migrating.dialects import DIALECTS, Dialect

_SECRETS = ("password", "passwd", "pwd=")


class AzureSource(msgspec.Struct, frozen=True, tag="azure"):
    """The timeout manager's tables and container, in the endpoint's own account and by its settings."""

    #: Bodies stay in the container, where nothing points to them any more, until somebody deletes it.
    keep_bodies: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return "azure, bodies kept" if self.keep_bodies else "azure"


class SqlSource(msgspec.Struct, frozen=True, tag="sql"):
    """The table of timeouts that SQL persistence keeps for one endpoint.

    How a task gets in: by `connect` where it is given; else SQLite by the file `database`, PostgreSQL by what
    libpq takes, from `variable` or `database`, with the password in `~/.pgpass` or a service file.
    """

    #: Of `DIALECTS`: sqlite, postgresql, sqlserver, mysql or oracle.
    dialect: str
    #: A file, or a connection text of libpq without a password, as `service=orders`.
    database: str = ""
    #: An environment variable that holds the connection text, where tasks run.
    variable: str = ""
    #: `module:function` that tasks can import; it returns an open connection of the Python Database API.
    connect: str = ""
    schema: str | None = None
    #: Of the table's name; None: the endpoint's name, dots as underscores, and one more underscore.
    prefix: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        where = self.database or (f"${self.variable}" if self.variable else self.connect)
        return f"{self.dialect} {where}".strip()

    @property
    def spoken(self) -> Dialect:
        """The dialect."""
        return DIALECTS[self.dialect]

    def check(self) -> "SqlSource":
        """Itself, if it can be used.

        Raises:
            UsageError: the dialect is not known, or a secret would travel in plans.
        """
        if self.dialect not in DIALECTS:
            raise UsageError(
                f"there is no SQL dialect {self.dialect!r}; there are {', '.join(DIALECTS)} (or azure)"
            )
        spoken = self.database.lower()
        # `//user:secret@host`
        user = spoken.rpartition("@")[0].rpartition("//")[2]
        if any(word in spoken for word in _SECRETS) or ("//" in spoken and ":" in user):
            raise UsageError(
                "the database's text holds a password, and would stand in plans and logs; put the text into "
                "an environment variable and name that, or keep the password in ~/.pgpass"
            )
        if not self.connect and self.dialect not in ("sqlite", "postgresql"):
            raise UsageError(
                f"no driver for {self.dialect} comes with Postdate; name a function that returns a "
                "connection, as mymodule:connect"
            )
        if not (self.connect or self.database or self.variable):
            raise UsageError(f"source {self.dialect}: tell where the database is")
        return self

    def connection_text(self) -> str:
        """What the driver takes, found from where this process runs.

        Raises:
            UsageError: the variable is not set here.
        """
        if not self.variable:
            return self.database
        text = variable(self.variable)
        if text is None:
            raise UsageError(f"the environment variable {self.variable} is not set where tasks run")
        return text


Source = AzureSource | SqlSource


class AzureRange(msgspec.Struct, frozen=True, tag="azure"):
    """Rows of a table, as `spark.ranges.KeyRange` has them."""

    first: str | None = None
    last: str | None = None
    row_from: str | None = None
    row_until: str | None = None


class SqlRange(msgspec.Struct, frozen=True, tag="sql"):
    """`start < (time, id) <= end`, as the database orders them; None: open."""

    start: tuple[str, str] | None = None
    end: tuple[str, str] | None = None


Range = AzureRange | SqlRange


class Chosen(msgspec.Struct, frozen=True):
    """Which timeouts a run takes: `Selection`, as a document keeps it."""

    #: A full instant, in UTC.
    due_from: datetime | None = None
    margin_s: float = 300.0

    @classmethod
    def of(cls, selection: Selection) -> "Chosen":
        """Of a selection.

        Raises:
            UsageError: its cut-off has no zone.
        """
        due_from = selection.due_from
        if due_from is not None and due_from.tzinfo is None:
            raise UsageError(f"cut-off {due_from.isoformat()} has no time zone; write it with one")
        return cls(due_from and due_from.astimezone(UTC), selection.margin.total_seconds())

    @property
    def shown(self) -> str:
        """For people."""
        since = "everything" if self.due_from is None else f"what is due from {self.due_from.isoformat()}"
        return f"{since}, margin {self.margin_s:g} s"

    @property
    def selection(self) -> Selection:
        """Back."""
        return Selection(self.due_from, timedelta(seconds=self.margin_s))
