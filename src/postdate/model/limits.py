"""Limits of the storage service, one constant each with its unit and source.

Source: the services' documentation and measurements on Azurite 3.36 (azure-storage-facts, 1.1, 2.1).
"""

from datetime import UTC, datetime, timedelta

#: Bytes of one queue message's text, after base64.
QUEUE_TEXT_BYTES = 65_536
#: Bytes of an envelope before base64: 3/4 of the above.
ENVELOPE_BYTES = 49_152
#: UTF-16 code units of a table's string property, hence of the headers' JSON.
STRING_PROPERTY_UNITS = 32_768
#: Bytes of a table's binary property, hence of a row's body.
BINARY_PROPERTY_BYTES = 65_536
#: UTF-16 code units of a partition or row key.
KEY_UNITS = 512
#: Operations in one entity-group transaction.
BATCH_OPERATIONS = 100
#: Bytes of one entity-group transaction on the wire; the service stops at 4 MiB.
BATCH_BYTES = 3_670_016
#: Rows in one page of a query.
PAGE_ROWS = 1_000
#: Seconds that a message can stay hidden in its queue.
MAX_HIDDEN_SECONDS = 604_800
#: Messages in one receive.
RECEIVE_MESSAGES = 32
#: Seconds of a lease: the service takes 15 to 60 (or without end, which we never use).
LEASE_SECONDS = (15, 60)
#: Bytes of an envelope kept free at intake for the headers that a failure adds later
#: (nservicebus-azure, 6.3: 2 to 4 KB). The fault headers are cut to fit into it.
FAULT_RESERVE_BYTES = 4_096
#: A due time must lie in [EARLIEST, LATEST): a table's DateTime starts in 1601, and one year is left at
#: the end so that time zones and the lookahead can be added without overflow.
EARLIEST_DUE = datetime(1601, 1, 1, tzinfo=UTC)
LATEST_DUE = datetime(9999, 1, 1, tzinfo=UTC)
#: Longest time to live that we set on a queue message; the service takes any positive number of seconds.
MAX_TIME_TO_LIVE = timedelta(days=3650)

#: Bytes of one block of an append blob (storage facts; later versions of the service take more).
APPEND_BLOCK_BYTES = 4 * 1024 * 1024
#: Blocks of one append blob.
APPEND_BLOCKS = 50_000
