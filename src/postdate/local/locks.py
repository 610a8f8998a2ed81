"""Locks on files, between processes. The system drops them when their holder ends, however it ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from postdate.errors import AzuriteError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock on `path`, after waiting for whoever has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which unlocks


@contextmanager
def folder_lock(folder: Path) -> Iterator[tuple[int, ...]]:
    """Claim a data folder; the child that inherits the descriptors has the lock until its end.

    Two Azurites that write the same files would lose each other's data.

    Raises:
        AzuriteError: another one has the folder.
    """
    if sys.platform == "win32":
        yield ()
        return
    descriptor = os.open(folder / ".postdate.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AzuriteError(
                f"another Azurite uses the folder {folder}; stop that one, or choose another folder"
            ) from None
        yield (descriptor,)
    finally:
        os.close(descriptor)


def claim(file: BinaryIO) -> bool:
    """Take the lock on an open file until it is closed; False: another process has it."""
    if sys.platform == "win32":
        return True  # its locks keep others from reading, ourselves included
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
