"""`sc2` and `smacv2`: one StarCraft II battle behind PyMARL's method names."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import MultiAgentEnv
from omg.envs.sc2.args import MAPS, ally_columns, check_arguments, check_own_arguments
from omg.envs.sc2.install import (
    SMAC,
    SMACV2,
    Package,
    check_game,
    check_map,
    check_map_file,
    import_package,
    installed_versions,
)
from omg.envs.sc2.watchdog import (
    GameHungError,
    Watchdog,
    close_game,
    inner_game,
    is_game_failure,
    kill_game,
)
from omg.envs.serial import episode_seed
from omg.types import FloatArray, OmgError, RunFailedError

log = logging.getLogger(__name__)

DROPPED: tuple[float, bool, dict[str, Any]] = (0.0, True, {"dropped": True})
STATISTICS = ("battle_won", "dead_allies", "dead_enemies", "restarts")


class SmacEnv(MultiAgentEnv):
    """StarCraft II battles of SMAC; needs the package `smac` and the game.

    The game starts at the first `reset`. A step or reset that takes longer than `timeout_seconds`
    has the game killed; so does an error of the connection. Either way the episode is dropped and
    the next one begins in a new game, at most `max_restarts` times without an episode that was
    played to its end. Everything else in `args` goes to the package's class.
    """

    package: ClassVar[Package] = SMAC
    game_class: ClassVar[str] = "StarCraft2Env"

    def __init__(
        self,
        *,
        seed: int | None = None,
        timeout_seconds: float = 300.0,
        max_restarts: int = 5,
        **args: Any,
    ) -> None:
        self._timeout, self._max_restarts = check_own_arguments(timeout_seconds, max_restarts)
        module = import_package(self.package)
        self._class = getattr(module, self.game_class)
        options = _options(module)
        self._args = check_arguments(args, options, self.package.module)
        self._options = {**options, **self._args}
        map_file = check_map(self.package, self._options["map_name"])
        check_map_file(self.package, map_file, check_game())
        self._seed = seed
        self._steps = 0
        self._replaced = 0  # games that were given up
        self._failures = 0  # restarts since an episode was last played to its end
        self._played = False  # whether the game ever began an episode
        self._totals = {"battles_won": 0, "battles_game": 0, "timeouts": 0, "restarts": 0}
        self._game: Any = None
        self._timeouts = 0  # as counted by the present game
        self._watchdog = Watchdog(self._timeout, self._kill)
        self._info = self._describe(self._begin_game())

    @classmethod
    def versions(cls, args: Mapping[str, Any]) -> dict[str, str]:
        """The game's version and the packages', to be written beside results."""
        return installed_versions(cls.package, args)

    # The seed is the class's, not reset's: StarCraft II takes one when it starts.
    def reset(self) -> tuple[list[FloatArray], FloatArray]:  # type: ignore[override]
        while failure := self._begin_episode():
            self._lose(failure)
        _keep_first_game(inner_game(self._game))
        self._played, self._steps = True, 0
        return self.get_obs(), self.get_state()

    def _begin_episode(self) -> Exception | None:
        """Have the game begin one; what went wrong, if anything."""
        game = self._game or self._begin_game()
        before = inner_game(game).force_restarts
        failure: Exception | None = None
        try:
            self._guarded(game.reset)
        except Exception as error:
            failure = error
        if inner_game(game).force_restarts != before and not isinstance(failure, GameHungError):
            # SMAC started the game again, and then shows the old game's units or misses them.
            return ConnectionError("the connection broke while an episode began")
        return failure

    def step(self, actions: Sequence[int]) -> tuple[float, bool, dict[str, Any]]:
        """The team's reward. An end at the limit has `episode_limit` in its info, whatever
        `continuing_episode` says; a lost episode has `dropped`."""
        game = self._running()
        self._steps += 1
        try:
            reward, ended, info = self._guarded(partial(game.step, list(actions)))
        except Exception as error:
            self._lose(error)
            return DROPPED
        if not info:  # SMAC's sign that it has started the game again
            self._count("the connection broke")
            return DROPPED
        return float(reward), bool(ended), self._summary(info) if ended else {}

    def _summary(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Statistics of the episode that just ended, and whether the limit ended it."""
        game = self._running()
        timeouts = int(game.get_stats()["timeouts"])
        cut, self._timeouts = timeouts > self._timeouts, timeouts
        won, restarts = bool(info["battle_won"]), self._failures
        self._failures = 0
        for name, more in (("battles_won", won), ("battles_game", True), ("timeouts", cut)):
            self._totals[name] += more
        inner = inner_game(game)
        return {
            "episode_limit": cut,
            "battle_won": won,
            "dead_allies": info.get("dead_allies", _dead(inner.agents)),
            "dead_enemies": info.get("dead_enemies", _dead(inner.enemies)),
            "restarts": restarts,
        }

    def get_obs(self) -> list[FloatArray]:
        width = self._info["obs_shape"]
        return [_fit(obs, width) for obs in self._running().get_obs()]

    def get_state(self) -> FloatArray:
        if self._options["obs_instead_of_state"]:
            return np.concatenate(self.get_obs())
        return np.asarray(self._running().get_state(), np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        game = self._running()
        return [game.get_avail_agent_actions(agent) for agent in range(self._info["n_agents"])]

    def get_env_info(self) -> dict[str, Any]:
        return dict(self._info)

    def get_stats(self) -> dict[str, float]:
        """Totals since the environment was made, over all games that were started for it."""
        battles = self._totals["battles_game"]
        return {
            **self._totals,
            "battles_draw": self._totals["timeouts"],
            "win_rate": self._totals["battles_won"] / battles if battles else 0.0,
        }

    def save_replay(self) -> None:
        """Have the game write a replay of everything since it was started, to `replay_dir` (the
        game's own folder Replays where that is empty)."""
        try:
            self._guarded(self._running().save_replay)
        except Exception as error:
            if not is_game_failure(error):
                raise
            raise RunFailedError(
                f"StarCraft II did not save a replay: {_told(error)}. Evaluate the run again with "
                "--save_replay."
            ) from error

    def render(self) -> NDArray[np.uint8]:
        return np.asarray(self._running().render(mode="rgb_array"), np.uint8)

    def close(self) -> None:
        self._watchdog.close()
        game, self._game = self._game, None
        if game is not None:
            close_game(game)

    def _running(self) -> Any:
        if self._game is None:
            raise OmgError("No battle is running. Call reset() first.")
        return self._game

    def _begin_game(self) -> Any:
        """A new game object; StarCraft II itself starts when it is reset. One that replaces
        another gets another seed, lest it fails at the same place."""
        seed = self._seed
        if seed is not None and self._replaced:
            seed = episode_seed(seed, 0, self._replaced)
        self._game = self._class(**copy.deepcopy(self._args), seed=seed)
        self._timeouts = 0
        return self._game

    def _guarded(self, function: Callable[[], Any]) -> Any:
        """Call the game; one that does not answer in time is killed, which makes the call fail."""
        if not self._timeout:
            return function()
        with self._watchdog.watching():
            return function()

    def _kill(self) -> None:
        if self._game is not None:
            kill_game(self._game)

    def _lose(self, error: Exception) -> None:
        """Replace the game after a failure of its own; every other error is passed on."""
        if not is_game_failure(error):
            if self._played or not isinstance(error, ValueError | RuntimeError | OSError):
                raise error
            raise OmgError(
                f"StarCraft II could not be started: {_told(error)}. Check SC2PATH and "
                "env_args.game_version; 'omg doctor' shows what is installed."
            ) from error
        self._kill()
        self.close()
        self._replaced += 1
        self._count(_told(error), error)

    def _count(self, reason: str, cause: Exception | None = None) -> None:
        self._failures += 1
        self._totals["restarts"] += 1
        name = self._info["name"]
        if self._failures > self._max_restarts:
            self.close()
            raise RunFailedError(
                f"StarCraft II (map {name}) failed {self._failures} times in a row: {reason}. Look "
                "at the machine's memory and at 'omg doctor'; if the game is only slow, raise "
                "env_args.timeout_seconds, else env_args.max_restarts."
            ) from cause
        log.warning(
            "StarCraft II (map %s) is restarted (%d of at most %d in a row) and its episode "
            "dropped: %s.",
            name,
            self._failures,
            self._max_restarts,
            reason,
        )

    def _describe(self, game: Any) -> dict[str, Any]:
        info = game.get_env_info()
        return {
            **{key: info[key] for key in ("state_shape", "obs_shape", "n_actions")},
            **{key: info[key] for key in ("n_agents", "episode_limit")},
            "name": str(self._options["map_name"]),
            "shared_reward": True,
            "statistics": STATISTICS,
            "agent_features": self._agent_features(info, inner_game(game).n_enemies),
        }

    def _agent_features(
        self, info: Mapping[str, Any], n_enemies: int
    ) -> tuple[tuple[int, ...], ...]:
        """Columns of the state that describe each ally. Newer packages name the features of a
        unit; for older ones the map tells."""
        layout = MAPS.get(self._options["map_name"])
        if self._options["obs_instead_of_state"] or not (layout or "agent_features" in info):
            return ()
        ally, enemy = (
            len(info[key]) if key in info else getattr(layout, width)
            for key, width in (("agent_features", "ally_width"), ("enemy_features", "enemy_width"))
        )
        actions = info["n_agents"] * info["n_actions"] * self._options["state_last_action"]
        return ally_columns(
            info["n_agents"],
            ally_width=ally,
            others=n_enemies * enemy + actions + self._options["state_timestep_number"],
            state_size=info["state_shape"],
        )


class Smacv2Env(SmacEnv):
    """StarCraft II battles of SMACv2: teams and places differ in every episode; needs `smacv2`."""

    package = SMACV2
    game_class = "StarCraftCapabilityEnvWrapper"


def _options(module: ModuleType) -> dict[str, Any]:
    """Arguments of the package's class with their defaults; the wrapper passes all of them on."""
    parameters = inspect.signature(module.StarCraft2Env).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "seed"}


def _keep_first_game(inner: Any) -> None:
    """Until an episode has ended, SMAC's reset would start a second game beside the first and add
    the enemies' health to the reward's scale once more. Counting the episode now prevents it."""
    inner._episode_count = max(inner._episode_count, 1)


def _fit(obs: Any, width: int) -> FloatArray:
    """With obs_timestep_number SMAC's observations are wider by one than it says: the last of
    one's own features stays empty, and the time stands behind it."""
    array = np.asarray(obs, np.float32)
    return np.delete(array, width - 1) if len(array) == width + 1 else array


def _dead(units: Mapping[int, Any]) -> int:
    return sum(unit.health == 0 for unit in units.values())


def _told(error: BaseException) -> str:
    """An exception as part of a sentence."""
    text = str(error).strip().rstrip(".") or type(error).__name__
    return text.splitlines()[0]
