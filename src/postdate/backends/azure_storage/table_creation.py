"""Creating a table where it is missing."""

from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate


async def create_table(client: TableClient, place: Place) -> bool:
    """Create the client's table where it is missing; True if this call did.

    Raises:
        ServiceBusy: a table of this name is being deleted; that takes 40 s or more (fact 11).
    """
    try:
        await client.create_table()
    except CALL_ERRORS as error:
        if refusal(error) is Refusal.EXISTS:
            return False
        raise translate(error, f"creating table {client.table_name}", place) from error
    return True
