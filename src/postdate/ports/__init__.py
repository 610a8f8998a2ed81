"""The protocols between the engine and a storage backend: the public contract for a store of your own.

Each has a conformance suite in `postdate.testing.conformance`, which the shipped backends pass. Any method
may raise `StorageError`; those that can find the table, container or queue missing raise `NotProvisioned` or
`DestinationNotFound`. What else one raises is a mistake in it, and ends whoever called. Instants are aware,
durations are seconds. How to write a delayed store: docs/how-to/own-store.md.
"""

from postdate.model.added import AddResult, added_before, all_added
from postdate.model.delayed import DelayedMessage, DelayedRow, Row, UnreadableRow
from postdate.model.inbox import InboxKey
from postdate.model.keys import RowKey
from postdate.model.message import Message
from postdate.ports.backend import Backend
from postdate.ports.delivery_log import DeliveryLogStore, LogDisplaced, LogFile
from postdate.ports.guard import Guard, LeaseLost
from postdate.ports.inbox import Busy, Done, Fresh, InboxAnswer, InboxClaim, InboxStore, claim_lost
from postdate.ports.lease import LeaderRecord, LeaseStore
from postdate.ports.payloads import PayloadStore
from postdate.ports.queues import QueueReceiver, QueueSender, Receipt, Received
from postdate.ports.store import DelayedStore, note_removed, removed_before
from postdate.ports.timeouts import TimeoutStore

__all__ = [
    "AddResult",
    "Backend",
    "Busy",
    "DelayedMessage",
    "DelayedRow",
    "DelayedStore",
    "DeliveryLogStore",
    "Done",
    "Fresh",
    "Guard",
    "InboxAnswer",
    "InboxClaim",
    "InboxKey",
    "InboxStore",
    "LeaderRecord",
    "LeaseLost",
    "LeaseStore",
    "LogDisplaced",
    "LogFile",
    "Message",
    "PayloadStore",
    "QueueReceiver",
    "QueueSender",
    "Receipt",
    "Received",
    "Row",
    "RowKey",
    "TimeoutStore",
    "UnreadableRow",
    "added_before",
    "all_added",
    "claim_lost",
    "note_removed",
    "removed_before",
]
