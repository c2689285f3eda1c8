"""A game that does not answer is killed, so that whoever waits for it gets an error."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

# Packages whose exceptions mean that the game or the connection to it failed.
GAME_PACKAGES = frozenset(["pysc2", "websocket", "s2clientprotocol", "google", "smac", "smacv2"])
# What a game object holds much memory in; the packages keep closed games until the program ends.
_HEAVY = (
    *("_obs", "_controller", "_sc2_proc", "_run_config", "agents", "enemies"),
    *("previous_ally_units", "previous_enemy_units", "pathing_grid", "terrain_height"),
)


class GameHungError(Exception):
    """The game did not answer in time."""


class GameKilledError(Exception):
    """Raised where a killed game would be started again by the package itself."""


class Watchdog:
    """Calls `bite` when something watched takes longer than `seconds`, and again until it ends.

    The watched call stays in its own thread, as handing every step to another one would cost more
    than the step on a busy machine. So `bite` must make it fail: it kills the game.
    """

    def __init__(self, seconds: float, bite: Callable[[], None]) -> None:
        self._seconds, self._bite = seconds, bite
        self._deadline = math.inf
        self._bitten = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what happens inside; if it took too long, that is what is reported, whether it
        failed in the end or not."""
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._watch, args=(self._stop,), daemon=True)
            self._thread.start()
        with self._lock:
            self._bitten, self._deadline = False, time.monotonic() + self._seconds
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        finally:
            with self._lock:
                self._deadline = math.inf
        if self._bitten:
            raise GameHungError(f"it did not answer within {self._seconds:g} seconds") from failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the watching thread; it starts again when it is needed."""
        self._stop.set()
        self._thread = None

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(min(self._seconds / 4, 1.0)):
            with self._lock:
                if time.monotonic() > self._deadline:
                    self._bitten = True
                    self._bite()


def is_game_failure(error: BaseException) -> bool:
    """Whether an exception says that the game or the connection to it broke, rather than that
    something is wrong with how it was called."""
    if isinstance(error, GameHungError | GameKilledError | ConnectionError | EOFError):
        return True
    return any(kind.__module__.split(".")[0] in GAME_PACKAGES for kind in type(error).__mro__)


def kill_game(game: Any) -> None:
    """End the game's process at once, so that whoever waits for its answer gets an error, and
    keep the object from starting another one."""
    inner = inner_game(game)
    inner.full_restart = inner._launch = _refuse
    process = getattr(getattr(inner, "_sc2_proc", None), "_proc", None)
    if process is not None:
        with contextlib.suppress(OSError):
            process.kill()


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise GameKilledError("it was killed")


def close_game(game: Any) -> None:
    """Close a game, whatever state it is in, and free what it holds."""
    with contextlib.suppress(Exception):
        game.close()
    inner = inner_game(game)
    for name in _HEAVY:
        if hasattr(inner, name):
            setattr(inner, name, None)


def inner_game(game: Any) -> Any:
    """The StarCraft2Env itself; smacv2 wraps it."""
    return vars(game).get("env", game)
