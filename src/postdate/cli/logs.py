"""The `postdate` loggers on stderr: lines for people, coloured on a terminal, or JSON for collectors."""

import logging
import sys
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from rich.console import Console
from rich.text import Text

from postdate.cli.render import instant, plain
from postdate.events import Event, RequestsCounted

_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}


class LogFormat(StrEnum):
    """How log records look."""

    TEXT = "text"
    JSON = "json"


def log_to_stderr(level: int, form: LogFormat = LogFormat.TEXT) -> None:
    """Send what the `postdate` loggers say to stderr, in place of an earlier call's way."""
    logger = logging.getLogger("postdate")
    for handler in list(logger.handlers):
        if isinstance(handler, _Stderr):
            logger.removeHandler(handler)
    stderr = _Stderr(form)
    if form is LogFormat.TEXT and level > logging.DEBUG:
        stderr.addFilter(_is_for_people)
    logger.addHandler(stderr)
    logger.setLevel(level)


class _Stderr(logging.Handler):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._form is LogFormat.JSON:
                sys.stderr.write(_as_json(record) + "\n")
            elif sys.stderr.isatty():
                text = Text(_as_text(record), style=_STYLES.get(record.levelno, ""))
                Console(stderr=True, highlight=False).print(text, soft_wrap=True)
            else:
                sys.stderr.write(_as_text(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a log that can't be written stops nobody
            self.handleError(record)


def _is_for_people(record: logging.LogRecord) -> bool:
    """False for sums that nobody reads by the line."""
    return not isinstance(getattr(record, "postdate_event", None), RequestsCounted)


def _as_text(record: logging.LogRecord) -> str:
    line = f"{instant(_time(record))} {record.levelname.lower():8}{plain(record.getMessage())}"
    if record.exc_info:
        line += "\n" + logging.Formatter().formatException(record.exc_info)
    return line


def _as_json(record: logging.LogRecord) -> str:
    values: dict[str, object] = {
        "time": _time(record),
        "level": record.levelname.lower(),
        "logger": record.name,
    }
    event = getattr(record, "postdate_event", None)
    if isinstance(event, Event):
        values["event"] = event.name
        values |= {field.name: getattr(event, field.name) for field in fields(event)}
    else:
        values["message"] = record.getMessage()
    if record.exc_info:
        values["traceback"] = logging.Formatter().formatException(record.exc_info)
    return msgspec.json.encode(values).decode()


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
