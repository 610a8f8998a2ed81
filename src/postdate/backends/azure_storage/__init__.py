"""Tables, queues and a lease of Azure Storage: the only package that imports an Azure library."""

from postdate.backends.azure_storage.backend import AzureStorageBackend, open_backend

__all__ = ["AzureStorageBackend", "open_backend"]
