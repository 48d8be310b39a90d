"""Names, addresses and connections between the machines of a run, with sentences where the system has only numbers."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time

from paceline.base.errors import RunFailed


def resolve(name: str, *, seconds: float) -> str:
    """The IPv4 address of a name. Name servers that do not answer may take half a minute to fail: we wait `seconds`."""
    addresses: list[str] = []
    why: list[str] = []

    def look() -> None:
        try:
            addresses.append(str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]))
        except OSError as error:
            why.append(error.strerror or str(error))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    if addresses:
        return addresses[0]
    raise RunFailed(
        f"{socket.gethostname()} cannot resolve the head machine's name {name!r} ({why[0] if why else f'no answer in {seconds:g} s'}): "
        "give head= an address or a name that all machines know",
        kind="launch",
    )


def listen(head: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket on the head's own address, and that address. Only there: nothing else of the machine is opened."""
    address, here = resolve(head, seconds=8.0), socket.gethostname()
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
        server.listen(128)
    except OSError as error:
        server.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} on {here} is taken: give another port=, or leave it out"
        elif error.errno == errno.EADDRNOTAVAIL:
            why = f"head={head} is {address}, and that is not an address of {here}, which is machine 0: give head= its name"
        else:
            why = f"{here} cannot listen at {address}:{port} ({error.strerror})"
        raise RunFailed(why, kind="launch") from None
    if address.startswith("127."):
        server.close()
        raise RunFailed(
            f"head={head} resolves to {address} on {here}: other machines cannot reach a loopback address; give head= the "
            "address of its network card",
            kind="launch",
        )
    return server, address


def connect(head: str, port: int, *, seconds: float) -> socket.socket:
    """A connection to the head, tried again until the time is up: machines start in any order."""
    address, here = resolve(head, seconds=8.0), socket.gethostname()
    deadline = time.monotonic() + seconds
    last = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            line.settimeout(min(3.0, left))
            line.connect((address, port))
        except OSError as error:
            line.close()
            last = error.strerror or str(error)
            time.sleep(min(0.1, max(0.0, left)))
            continue
        return line
    raise RunFailed(
        f"{here} cannot reach the head machine {head} ({address}, port {port}) within {seconds:g} s ({last}): a machine or its link "
        "is down, or a firewall is between them",
        kind="launch",
    )


def address_towards(head: str, port: int) -> str:
    """The address by which this machine reaches the head, and by which the others can reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((resolve(head, seconds=8.0), port))  # a datagram socket: nothing is sent
        return str(line.getsockname()[0])


def interface_towards(head: str, port: int) -> str | None:
    """The name of that network card; None where it cannot be told."""
    import psutil

    with contextlib.suppress(OSError):
        address = address_towards(head, port)
        for name, entries in psutil.net_if_addrs().items():
            if any(entry.address == address for entry in entries):
                return name
    return None
