"""Everything in this process's memory: for users' tests and local work, with the real engine on top.

It passes the same conformance suites as Azure Storage: exact in conflicts, lease expiry and visibility.
"""

from postdate.backends.memory.account import MemoryAccount, MemoryBackend

__all__ = ["MemoryAccount", "MemoryBackend"]
