"""Ports for the blob, queue and table service, in this order wherever there are three."""

import errno
import http.client
import random
import socket
import sys
from contextlib import closing, suppress

from postdate.errors import AzuriteError, ConfigurationError

HOST = "127.0.0.1"  # never "localhost": the tables SDK takes that for Cosmos DB on most ports
SERVICES = ("blob", "queue", "table")
WELL_KNOWN_PORTS = (10000, 10001, 10002)
# Below the ports that systems give to outgoing connections. From those, a client that keeps trying to
# reach a stopped Azurite can by chance connect to itself, and so take the port.
_FREE_PORTS = range(20000, 30000)

Ports = tuple[int, int, int]


class PortTaken(AzuriteError):
    """Something else listens on a port that Azurite should have."""

    def __init__(self, port: int, service: str = "") -> None:
        what = f"{service} port {port}" if service else f"port {port}"
        super().__init__(
            f"{what} is already in use on {HOST}; stop what uses it (another Azurite?), or choose other "
            "ports (`postdate azurite --free-ports`)"
        )


def checked_ports(ports: str | Ports) -> Ports | None:
    """The ports that were asked for; None: any that are free.

    Raises:
        ConfigurationError: they are not three different ports.
    """
    if ports == "free":
        return None
    if ports == "well-known":
        return WELL_KNOWN_PORTS
    if (
        isinstance(ports, str)
        or len(set(ports)) != len(WELL_KNOWN_PORTS)
        or not all(0 < p < 1 << 16 for p in ports)
    ):
        raise ConfigurationError(
            f"ports {ports!r} must be 'free', 'well-known', or three different ports: blob, queue, table"
        )
    return ports


def pick_ports() -> Ports:
    """Three ports that are free now; somebody may still be quicker."""
    chosen: list[int] = []
    for port in random.sample(_FREE_PORTS, len(_FREE_PORTS)):
        with suppress(PortTaken):
            check_free("", port)
            chosen.append(port)
        if len(chosen) == len(WELL_KNOWN_PORTS):
            return chosen[0], chosen[1], chosen[2]
    raise AzuriteError(f"no free ports from {_FREE_PORTS.start} to {_FREE_PORTS.stop - 1}")


def check_free(service: str, port: int) -> None:
    """Find out now what Azurite would find out later.

    Raises:
        PortTaken: it is in use.
        AzuriteError: it can't be used for another reason.
    """
    with closing(socket.socket()) as probe:
        if sys.platform != "win32":  # there it would allow a port that is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(port, service) from None
            raise AzuriteError(f"can't use {service} port {port} on {HOST}: {error.strerror}") from None


def answers(port: int) -> bool:
    """Whether an HTTP server answers there, whatever it says."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=1)) as connection:
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        return True
