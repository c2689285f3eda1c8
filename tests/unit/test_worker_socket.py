"""The socket through which a worker on another machine takes its commands."""

from __future__ import annotations

import socket
import threading
from multiprocessing import AuthenticationError
from typing import Any

import numpy as np
import pytest

from omg.envs import worker_socket
from omg.envs.worker_socket import Door, visit


def test_a_door_that_nobody_opens_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_socket, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        visit(silent.getsockname()[:2], b"key")


def test_a_visitor_without_the_key_is_sent_away_and_the_next_one_is_let_in() -> None:
    door = Door("127.0.0.1", b"right")
    address = door.address
    found: list[Any] = []
    arrays: Any = {"actions": np.zeros((2, 1), np.int64)}
    opening = threading.Thread(target=lambda: found.append(door.open(arrays)))
    opening.start()
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        visit(address, b"wrong")
    with visit(address, b"right") as connection:
        opening.join(10)
        connection.send(("step", np.array([[3], [4]]).tobytes()))
        assert found[0].recv() == ("step", None)
        assert arrays["actions"].tolist() == [[3], [4]]
        with pytest.raises(OSError, match="refused"):
            visit(address, b"right")
