"""B copies of any PyMARL-style environment in this process, stepped as one `BatchedEnv`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.types import (
    BoolArray,
    EnvSpec,
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    OmgError,
    RunFailedError,
    Snapshot,
    TimeStep,
)


class BatchedEnvFactory(Protocol):
    """Makes some of the copies, e.g. `functools.partial(ForagingEnv, args=args)`."""

    def __call__(self, *, n_copies: int, first_copy: int) -> BatchedEnv:
        """Copies `first_copy` to `first_copy + n_copies - 1`."""


def episode_seed(seed: int, copy: int, episode: int) -> int:
    """The 31-bit seed of one episode of one (globally numbered) copy."""
    state = np.random.SeedSequence([seed, copy, episode]).generate_state(1)
    return int(state[0]) & 0x7FFFFFFF


def _columns(value: Any) -> tuple[tuple[int, ...], ...]:
    """Columns of the state per agent; nothing where a game means something else by the key."""
    if any(isinstance(part, str) for part in value):
        return ()
    return tuple(tuple(int(column) for column in columns) for columns in value)


_OPTIONAL: Mapping[str, Callable[[Any], Any]] = {
    "obs_scale": float,
    "state_scale": float,
    "obs_dtype": str,
    "state_dtype": str,
    "obs_format": str,
    "agent_features": _columns,
    "roles": lambda value: tuple(str(role) for role in value),
    "obs_dims": lambda value: tuple(int(width) for width in value),
}


def spec_from_info(info: Mapping[str, Any], name: str) -> EnvSpec:
    """Read PyMARL's `get_env_info`, with our optional keys `shared_reward` (True when missing),
    `statistics` and those of `_OPTIONAL`, named as in `EnvSpec`; shapes are flattened.
    `agent_features` counts only where it lists columns (SMAC's own key names features)."""
    required = ("state_shape", "obs_shape", "n_actions", "n_agents", "episode_limit")
    if missing := [key for key in required if key not in info]:
        raise OmgError(
            f"get_env_info() of {name} lacks {', '.join(missing)}. "
            f"It must give {', '.join(required)}."
        )
    optional = {key: kind(info[key]) for key, kind in _OPTIONAL.items() if key in info}
    return EnvSpec(
        name=name,
        n_agents=int(info["n_agents"]),
        n_actions=int(info["n_actions"]),
        obs_dim=int(np.prod(info["obs_shape"])),
        state_dim=int(np.prod(info["state_shape"])),
        episode_limit=int(info["episode_limit"]),
        shared_reward=bool(info.get("shared_reward", True)),
        statistics=tuple(info.get("statistics", ())),
        **optional,
    )


class SerialVectorEnv(BatchedEnv):
    """Copies of a `MultiAgentEnv`, one after the other in this process.

    An end is a truncation when `info["episode_limit"]` is true, when the game has not ended by
    itself after `episode_limit` steps (it is cut there), or when it reports a plain end at
    exactly that step without the key and its env info has a true `limit_is_truncation`. Every
    other end is a termination. `info["dropped"]` restarts the copy and reports it as dropped.

    A single reward goes to all agents. Whether rewards are shared has to be known before the
    first step, so an environment with one reward per agent must say `shared_reward: False`.
    """

    def __init__(
        self,
        *,
        factory: Callable[[int], MultiAgentEnv],
        n_copies: int,
        first_copy: int = 0,
        name: str | None = None,
    ) -> None:
        if n_copies < 1:
            raise OmgError(f"{n_copies} copies were asked for. Ask for at least one.")
        self.n_copies = n_copies
        self._first_copy = first_copy
        self._seed = -1
        self._episodes = [0] * n_copies
        self._steps = [0] * n_copies
        self._envs: list[MultiAgentEnv] = []
        try:
            for copy in range(first_copy, first_copy + n_copies):
                self._envs.append(factory(copy))
            infos = [env.get_env_info() for env in self._envs]
            name = name or str(infos[0].get("name", type(self._envs[0]).__name__))
            specs = [spec_from_info(info, name) for info in infos]
            if any(spec != specs[0] for spec in specs):
                raise OmgError(f"Copies of {name} differ in get_env_info(). Make them all alike.")
        except BaseException:
            self.close()
            raise
        self.spec = specs[0]
        self._limit_is_truncation = bool(infos[0].get("limit_is_truncation", False))
        self._takes_seed = _accepts_seed(self._envs[0].reset)
        self._remake = getattr(factory, "seeded", None)

    def reset(self, seed: int) -> Observation:
        return self.reset_at(seed, [0] * self.n_copies)

    def reset_at(self, seed: int, episodes: Sequence[int]) -> Observation:
        """Seed every copy and start its episode `episodes[b]`."""
        self._seed = int(seed)
        if self._remake is not None and not self._takes_seed:
            self._make_seeded_games([int(episode) for episode in episodes])
        return self._begin_all([int(episode) for episode in episodes])

    def _make_seeded_games(self, episodes: Sequence[int]) -> None:
        """Games that are seeded when they are made, not at `reset`, are made anew."""
        assert self._remake is not None
        for b, episode in enumerate(episodes):
            copy = self._first_copy + b
            game = self._remake(copy, episode_seed(self._seed, copy, episode))
            if game is not None:
                self._envs[b].close()
                self._envs[b] = game

    @property
    def games_save_replays(self) -> bool:
        """Whether the games have a `save_replay` of their own."""
        own = getattr(type(self._envs[0]), "save_replay", None)
        return own is not None and own is not MultiAgentEnv.save_replay

    def save_replay(self) -> None:
        """Have every game save its replay."""
        for env in self._envs:
            env.save_replay()

    def restart(self) -> Observation:
        self._require_reset()
        return self._begin_all([episode + 1 for episode in self._episodes])

    def step(self, actions: IntArray) -> TimeStep:
        self._require_reset()
        expected = (self.n_copies, self.spec.n_agents)
        if actions.shape != expected:
            raise OmgError(
                f"Actions of {self.spec.name} have shape {actions.shape}. Give {expected}."
            )
        obs, state, avail = self._empty(self.n_copies)
        reward = np.zeros(expected, np.float32)
        terminated = np.zeros(self.n_copies, np.bool_)
        truncated = np.zeros(self.n_copies, np.bool_)
        info = {name: np.full(self.n_copies, np.nan, np.float32) for name in self.spec.statistics}
        ended: list[int] = []
        last_views: list[tuple[FloatArray, FloatArray, BoolArray]] = []
        dropped: list[int] = []
        for b, env in enumerate(self._envs):
            value, done, details = env.step(actions[b].tolist())
            self._steps[b] += 1
            if details.get("dropped"):
                dropped.append(b)
                self._begin(b, self._episodes[b] + 1)
            else:
                reward[b] = self._rewards(value, b)
                for name in self.spec.statistics:
                    info[name][b] = details.get(name, np.nan)
                truncated[b] = self._is_truncation(b, done=bool(done), details=details)
                terminated[b] = bool(done) and not truncated[b]
                if done or truncated[b]:
                    ended.append(b)
                    last_obs, last_state, last_avail = self._look(b)
                    # Copied, as a game may reuse its arrays for the next episode.
                    last_views.append((last_obs.copy(), last_state.copy(), last_avail))
                    self._begin(b, self._episodes[b] + 1)
            obs[b], state[b], avail[b] = self._look(b)
        final = None
        if ended:
            last = [np.stack(parts) for parts in zip(*last_views, strict=True)]
            final = FinalObservation(np.array(ended, np.int64), last[0], last[1], last[2])
        return TimeStep(
            obs=obs,
            state=state,
            avail=avail,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final=final,
            info=info,
            dropped=np.array(dropped, np.int64),
        )

    def snapshot(self) -> Snapshot:
        self._require_reset()
        if any(self._steps):
            raise OmgError(
                f"{self.spec.name} cannot be saved in the middle of an episode. "
                "Take the snapshot right after reset() or restart()."
            )
        return {"seed": np.array(self._seed), "episodes": np.array(self._episodes, np.int64)}

    def restore(self, snapshot: Snapshot) -> Observation:
        episodes = snapshot["episodes"]
        if episodes.shape != (self.n_copies,):
            raise OmgError(
                f"The snapshot holds {episodes.size} copies of {self.spec.name}, not "
                f"{self.n_copies}. Restore it with the number of copies it was taken with."
            )
        return self.reset_at(int(snapshot["seed"]), episodes.tolist())

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        return self._envs[copy].render()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)

    def _begin_all(self, episodes: list[int]) -> Observation:
        obs, state, avail = self._empty(self.n_copies)
        for b, episode in enumerate(episodes):
            self._begin(b, episode)
            obs[b], state[b], avail[b] = self._look(b)
        return Observation(obs, state, avail)

    def _begin(self, b: int, episode: int) -> None:
        self._episodes[b], self._steps[b] = episode, 0
        if self._takes_seed:
            self._envs[b].reset(seed=episode_seed(self._seed, self._first_copy + b, episode))
        else:
            self._envs[b].reset()

    def _look(self, b: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        spec, env = self.spec, self._envs[b]
        obs = self._array(env.get_obs(), (spec.n_agents, spec.obs_dim), what="observations", b=b)
        state = self._array(env.get_state(), (spec.state_dim,), what="state", b=b)
        avail = self._array(
            env.get_avail_actions(), (spec.n_agents, spec.n_actions), what="available actions", b=b
        )
        return obs, state, avail != 0

    def _rewards(self, value: Any, b: int) -> FloatArray:
        reward = np.asarray(value, np.float32)
        n_agents = self.spec.n_agents
        if reward.ndim == 0:
            reward = np.full(n_agents, reward)
        elif self.spec.shared_reward and n_agents > 1 and reward.shape == (n_agents,):
            raise OmgError(
                f"{self.spec.name} gives one reward per agent but did not announce it. "
                "Put 'shared_reward': False into the result of get_env_info()."
            )
        return self._array(reward, (n_agents,), what="rewards", b=b)

    def _array(self, value: Any, shape: tuple[int, ...], *, what: str, b: int) -> FloatArray:
        """`value` as float32 of this shape with finite entries, or an error that says where."""
        try:
            array = np.asarray(value, np.float32)
            array = array.reshape(shape) if what in ("observations", "state") else array
        except ValueError:
            array = np.empty(0, np.float32)
        if array.shape != shape or (len(shape) == 2 and len(value) != shape[0]):
            raise OmgError(
                f"The {what} {self._where(b)} do not fit the shape {shape} that get_env_info() "
                f"announces: they have {_shape_of(value)}. Correct one of the two."
            )
        if not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0]
            entry = f"agent {bad[0]}, entry {bad[-1]}" if what != "state" else f"entry {bad[0]}"
            raise RunFailedError(
                f"The {what} {self._where(b)} contain {array[tuple(bad)]} ({entry}). "
                "Look for a division by zero or an overflow in the environment."
            )
        return array

    def _where(self, b: int) -> str:
        return f"of {self.spec.name} (copy {self._first_copy + b}, step {self._steps[b]})"

    def _is_truncation(self, b: int, *, done: bool, details: Mapping[str, Any]) -> bool:
        at_limit = self._steps[b] >= self.spec.episode_limit
        if not done:
            return at_limit
        return bool(details.get("episode_limit", at_limit and self._limit_is_truncation))

    def _empty(self, n: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        spec = self.spec
        return (
            np.empty((n, spec.n_agents, spec.obs_dim), np.float32),
            np.empty((n, spec.state_dim), np.float32),
            np.empty((n, spec.n_agents, spec.n_actions), np.bool_),
        )

    def _require_reset(self) -> None:
        if self._seed < 0:
            raise OmgError(f"{self.spec.name} has not been started. Call reset(seed) first.")


def _accepts_seed(reset: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


def _shape_of(value: Any) -> str:
    try:
        return f"shape {np.asarray(value, np.float32).shape}"
    except ValueError:
        return "rows of different lengths"
