"""What a test tells the stand-in: when the game breaks, and how peaceful it is.

`faults["step"] = {4: "hang"}` breaks the fourth request "step" since `calm()`. Requests: launch,
step, observe, save_replay. Faults:

    hang    no answer until the game's process is killed, then a broken connection
    break   a broken connection
    crash   an exception that StarCraft2Env does not catch
"""

from __future__ import annotations

import threading
from collections import Counter

from pysc2.lib import protocol

faults: dict[str, dict[int, str]] = {}
requests: Counter[str] = Counter()
# Processes that were started and not yet ended.
alive: set[FakeProcess] = set()
# Enemies stand still and harm nobody.
peaceful = False
# Shots miss now and then.
chance = True


class CrashError(protocol.ProtocolError):
    """Stands for what escapes SMAC, e.g. pysc2's ConnectError."""


class FakeProcess:
    """In place of subprocess.Popen: alive until it is killed."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        alive.add(self)

    def kill(self) -> None:
        alive.discard(self)
        self.ended.set()


class FakeStarcraftProcess:
    """In place of pysc2's StarcraftProcess."""

    def __init__(self) -> None:
        self._proc = FakeProcess()

    def close(self) -> None:
        self._proc.kill()


def calm() -> None:
    """Forget everything that a test asked for."""
    global peaceful, chance
    faults.clear()
    requests.clear()
    peaceful, chance = False, True


def request(name: str, process: FakeProcess | None) -> None:
    """A request to the game."""
    requests[name] += 1
    fault = faults.get(name, {}).get(requests[name])
    if fault == "crash":
        raise CrashError(f"SC2 crashed in {name}")
    if fault == "hang":
        assert process is not None
        process.ended.wait()
    if fault in ("break", "hang") or (process is not None and process.ended.is_set()):
        raise protocol.ConnectionError(f"Error during {name}: SC2 probably crashed.")
