"""Commands of a worker that come from another machine: a socket in place of the pipe, and what is
shown is sent instead of shared."""

from __future__ import annotations

import contextlib
import os
import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

import numpy as np

from omg.envs.worker_arrays import WorkerArrays

# What changes the arrays.
SHOWING = frozenset({"reset", "reset_at", "restart", "restore", "step"})
# When the other machine counts as lost: seconds of silence until the system asks whether it is
# there, between two questions, how many, and milliseconds for what was sent to arrive.
PATIENCE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
CONNECT_SECONDS = 20.0


class Door:
    """Where a worker waits for the one who knows its key."""

    def __init__(self, host: str, key: bytes) -> None:
        self._listener = Listener((host, 0), authkey=key)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.address[:2]
        return str(host), int(port)

    def open(self, arrays: WorkerArrays) -> Visitor:
        """Wait for the one, and let nobody else in."""
        with self._listener:
            while True:
                with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):
                    return Visitor(_swift(self._listener.accept()), arrays)


class Visitor:
    """The worker's end of the socket; to be used as the pipe is."""

    def __init__(self, connection: Connection, arrays: WorkerArrays) -> None:
        self._connection, self._arrays = connection, arrays
        self._command = ""

    def recv(self) -> tuple[str, Any]:
        """The next command; actions are put into the arrays."""
        self._command, argument = self._connection.recv()
        if self._command == "step":
            wanted = self._arrays["actions"]
            wanted[...] = np.frombuffer(argument, wanted.dtype).reshape(wanted.shape)
            argument = None
        return self._command, argument

    def send(self, answer: tuple[Any, ...]) -> None:
        """An answer, with the arrays if they have changed."""
        if answer[0] == "done" and self._command in SHOWING:
            ended = self._command == "step" and answer[1][0] > 0
            answer = (*answer, self._arrays.packed(with_ends=ended))
        self._connection.send(answer)


def visit(address: tuple[str, int], key: bytes) -> Connection:
    """Connect to a worker's door."""
    with socket.create_connection(address, timeout=CONNECT_SECONDS) as found:
        found.settimeout(None)
        connection = Connection(found.detach())
    if not connection.poll(CONNECT_SECONDS):
        connection.close()
        raise TimeoutError("nobody opens")
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return _swift(connection)


def _swift(connection: Connection) -> Connection:
    """Send at once what is to be sent, and notice a machine that is lost."""
    with socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PATIENCE.items():
            if hasattr(socket, name):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
