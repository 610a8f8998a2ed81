"""What can go wrong with the local storage service."""

from postdate.errors import PostdateError


class AzuriteError(PostdateError):
    """Azurite can't be installed or started; its text is one line, and what the tools said below it."""
