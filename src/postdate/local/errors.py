"""What can go wrong with the local storage service."""

from postdate.errors import PostdateError


class AzuriteError(PostdateError):
    """Azurite can't be installed or started; its text ends with what the tools said."""
