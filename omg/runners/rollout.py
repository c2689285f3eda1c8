"""The one rollout loop: all copies step together, an ended copy restarts at once. Tests play a
fixed number of episodes on copies of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from omg.components.episodes import ALIVE, REACHED, EpisodeBatch, EpisodeStaging, Scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import SEAT
from omg.controllers.base import Controller
from omg.envs.contract import BatchedEnv
from omg.policies.inputs import Carry, StepView
from omg.runners.rewards import Reweighting, team_reward
from omg.types import (
    BoolArray,
    EnvSpec,
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    RunFailedError,
    TimeStep,
)

if TYPE_CHECKING:
    from omg.runners.waves import Waves

V = TypeVar("V", Observation, TimeStep)


@dataclass(frozen=True, slots=True)
class EpisodeStats:
    """Numbers of finished episodes, one row each."""

    copies: IntArray  # [E]
    returns: FloatArray  # [E, N], undiscounted sum of each agent's rewards
    team_returns: FloatArray  # [E], the common reward summed
    lengths: IntArray  # [E]
    truncated: NDArray[np.bool_]  # [E]
    info: Mapping[str, FloatArray]  # environment statistics, [E] each

    def take(self, rows: IntArray) -> EpisodeStats:
        """Some of the episodes."""
        return EpisodeStats(
            copies=self.copies[rows],
            returns=self.returns[rows],
            team_returns=self.team_returns[rows],
            lengths=self.lengths[rows],
            truncated=self.truncated[rows],
            info={name: value[rows] for name, value in self.info.items()},
        )

    def metrics(self, prefix: str = "test_") -> dict[str, float]:
        """Means and deviations under the names they are logged with."""
        values = {
            "return_mean": self.team_returns.mean(),
            "return_std": self.team_returns.std(),
            "ep_length_mean": self.lengths.mean(),
            "truncated_mean": self.truncated.mean(),
        }
        for agent, mean in enumerate(self.returns.mean(0)):
            values[f"agent_{agent}_return_mean"] = mean
        values |= {f"{name}_mean": value.mean() for name, value in self.info.items()}
        return {prefix + name: float(value) for name, value in values.items()}


def concatenate(stats: list[EpisodeStats]) -> EpisodeStats:
    """One table of all episodes."""
    return EpisodeStats(
        copies=np.concatenate([s.copies for s in stats]),
        returns=np.concatenate([s.returns for s in stats]),
        team_returns=np.concatenate([s.team_returns for s in stats]),
        lengths=np.concatenate([s.lengths for s in stats]),
        truncated=np.concatenate([s.truncated for s in stats]),
        info={name: np.concatenate([s.info[name] for s in stats]) for name in stats[0].info},
    )


@dataclass(frozen=True, slots=True)
class Finished:
    """Episodes that ended in one step, and their numbers."""

    episodes: EpisodeBatch
    stats: EpisodeStats

    def take(self, rows: IntArray) -> Finished:
        """Some of the episodes."""
        return Finished(self.episodes[rows], self.stats.take(rows))


def check_finite(view: Observation | TimeStep, spec: EnvSpec) -> None:
    """Stop before anything is learned from NaN or infinity."""
    parts: dict[str, FloatArray] = {"observation": view.obs, "state": view.state}
    if isinstance(view, TimeStep):
        parts["reward"] = view.reward
        if view.final is not None:
            parts |= {"last observation": view.final.obs, "last state": view.final.state}
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(float(np.add.reduce(array, axis=None)) for array in parts.values())
    if not math.isfinite(total):  # it may also be too large itself
        _refuse_odd_numbers(view, parts, spec)
    if not (view.avail[..., 0].all() or view.avail.any(-1).all()):
        where = np.argwhere(~view.avail.any(-1))[0]
        raise RunFailedError(
            f"Agent {where[1]} of {spec.name} (copy {where[0]}) has no available action. Every "
            "agent needs one in every step, a dead one too (e.g. to do nothing)."
        )


def _refuse_odd_numbers(
    view: Observation | TimeStep, parts: Mapping[str, FloatArray], spec: EnvSpec
) -> None:
    for what, array in parts.items():
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            copy, *rest = (int(index) for index in bad[0])
            if what.startswith("last") and isinstance(view, TimeStep) and view.final is not None:
                copy = int(view.final.copies[copy])
            seat = f", agent {rest[0]}" if len(rest) == 2 or what == "reward" else ""
            raise RunFailedError(
                f"The {what} of {spec.name} (copy {copy}{seat}) contains "
                f"{array[tuple(bad[0])]}. Look for a division by zero or an overflow in the "
                "environment; nothing was learned from it."
            )


def present(view: Observation | TimeStep | FinalObservation) -> BoolArray:
    """Who still acts, [B, N]; everybody where an environment does not say."""
    return np.ones(view.obs.shape[:2], np.bool_) if view.alive is None else view.alive


class Rollout:
    """Plays a controller in a batched environment and hands out finished episodes."""

    def __init__(
        self,
        *,
        env: BatchedEnv,
        mac: Controller,
        scheme: Scheme,
        seeds: SeedTree,
        stream: str,
        device: torch.device,
        common_reward: bool,
        reward_scalarisation: str,
        limit_terminates: bool = False,
        reweighting: Reweighting | None = None,
        gamma: float = 1.0,
        greedy: bool = False,
    ) -> None:
        self.env, self.mac, self.greedy = env, mac, greedy
        self._seeds, self._stream, self._device = seeds, stream, device
        self._common_reward, self._how = common_reward, reward_scalarisation
        self._limit_terminates = limit_terminates
        self._reweighting = reweighting
        self.scheme = scheme
        self._staging = EpisodeStaging(
            scheme, n_copies=env.n_copies, episode_limit=env.spec.episode_limit
        )
        self._generator = seeds.torch(f"{stream}.actions")
        self._rng = seeds.numpy(f"{stream}.episodes")
        self._returns = np.zeros((env.n_copies, env.spec.n_agents), np.float64)
        self._discounted = np.zeros_like(self._returns)
        self._discount = np.ones((env.n_copies, 1), np.float64)
        self._gamma = gamma
        self._everyone = np.arange(env.n_copies)
        self._own_features: FloatArray | None = None  # 1 for a seat's features, 0 behind them
        if env.spec.obs_dims:
            width = np.arange(env.spec.obs_dim)
            own = width < np.array(env.spec.obs_dims)[:, None]
            self._own_features = own.astype(np.float32)
        self.dropped_last = 0  # episodes lost in the last step
        self.stepped_last = env.n_copies  # environment steps of the last step
        self.begin(0)

    @contextmanager
    def acting_greedily(self) -> Iterator[None]:
        """While open, the best action is taken."""
        before, self.greedy = self.greedy, True
        try:
            yield
        finally:
            self.greedy = before

    def begin(self, round_number: int, *, played: int = 0) -> None:
        """Start afresh in all copies; different numbers give different episodes. `played`: how
        many episodes of each copy went before, as far as rotating seats are concerned."""
        self._generator = self._seeds.torch(f"{self._stream}.actions", round_number)
        self._rng = self._seeds.numpy(f"{self._stream}.episodes", round_number)
        seed = self._seeds.integer(f"{self._stream}.env", round_number)
        self._restart_with(self.env.reset(seed), played)

    def _restart_with(self, view: Observation, played: int = 0) -> None:
        self._view: Observation | TimeStep = self._read(view)
        self._carry: Carry = self.mac.initial_carry(self.env.n_copies)
        self.mac.skip_episodes(self._carry, played)
        self._last_actions = np.full((self.env.n_copies, self.env.spec.n_agents), -1, np.int64)
        self._start_episodes(self._everyone)

    def _start_episodes(self, copies: IntArray) -> None:
        constants = self.mac.begin_episodes(self._carry, copies, self._rng)
        self._staging.begin(copies, constants)
        self._last_actions[copies] = -1
        self._returns[copies] = 0.0
        self._discounted[copies] = 0.0
        self._discount[copies] = 1.0

    @torch.inference_mode()
    def step(self, env_steps: int) -> Finished | None:
        """One step of every copy; the episodes that ended with it, if any."""
        view, spec = self._view, self.env.spec
        acted = self.mac.act(
            StepView(
                obs=torch.from_numpy(view.obs).to(self._device),
                state=torch.from_numpy(view.state).to(self._device),
                avail=torch.from_numpy(view.avail).to(self._device),
                last_actions=torch.from_numpy(self._last_actions).to(self._device),
                snapshot=self.env.snapshot if self.env.exact_snapshots else None,
                alive=torch.from_numpy(present(view)).to(self._device) if spec.leavers else None,
            ),
            self._carry,
            env_steps=env_steps,
            greedy=self.greedy,
            generator=self._generator,
        )
        actions = acted.actions.numpy()
        step = self._read(self.env.step(actions))
        learned = step.reward
        if self._reweighting is not None:
            learned = self._reweighting(step.reward, actions, present(view))
        self._staging.write(
            {
                "state": view.state,
                "obs": view.obs,
                "actions": actions,
                "avail_actions": view.avail,
                "reward": self._team_reward(learned)[:, None] if self._common_reward else learned,
                "terminated": self._over(step),
                **({ALIVE: present(view)} if spec.leavers else {}),
                **({REACHED: self._reached(step)} if spec.goals else {}),
                **acted.extras,
            }
        )
        self._returns += step.reward
        self._discounted += self._discount * step.reward
        self._discount *= self._gamma
        self._carry = acted.carry
        self._last_actions = actions.copy()
        self._view = step
        finished = self._take_finished(step)
        restarted = step.dropped
        self.dropped_last = len(step.dropped)
        if finished is not None:
            restarted = np.union1d(finished.stats.copies, restarted)
        if len(restarted):
            self._start_episodes(restarted)
        return finished

    def _read(self, view: V) -> V:
        """What the environment shows, if it is all numbers; behind the width of a seat's own
        features there is nothing to see, whatever stands there."""
        check_finite(view, self.env.spec)
        if self._own_features is None:
            return view
        changes: dict[str, Any] = {"obs": view.obs * self._own_features}
        if isinstance(view, TimeStep) and view.final is not None:
            changes["final"] = replace(view.final, obs=view.final.obs * self._own_features)
        return replace(view, **changes)

    def _reached(self, step: TimeStep) -> IntArray:
        return np.full(step.reward.shape, -1) if step.reached is None else step.reached

    def _team_reward(self, reward_BN: FloatArray) -> FloatArray:
        shared = self.env.spec.shared_reward
        return team_reward(reward_BN, shared=shared, how=self._how, seats=self.mac.seats)

    def _over(self, step: TimeStep) -> BoolArray:
        """What is learned from as the end of an episode, after which nothing is earned."""
        return step.terminated | step.truncated if self._limit_terminates else step.terminated

    def _take_finished(self, step: TimeStep) -> Finished | None:
        final = step.final
        if final is None or not len(final.copies):
            return None
        copies = final.copies
        returns = self._returns[copies].astype(np.float32)
        last: dict[str, NDArray[Any]] = {
            "state": final.state,
            "obs": final.obs,
            "avail_actions": final.avail,
        }
        if self.env.spec.leavers:
            last[ALIVE] = present(final)
        if self.env.spec.goals:  # nobody acts on a last observation
            last[REACHED] = np.full(final.obs.shape[:2], -1)
        episodes = self._staging.finish(copies, last)
        info = {name: step.info[name][copies] for name in self.env.spec.statistics}
        if SEAT in episodes.scheme.fields:  # one agent learns: its own return, wherever it sat
            own = (np.arange(len(copies)), episodes[SEAT].numpy())
            info["own_return"] = returns[own]
            info["own_discounted_return"] = self._discounted[copies][own].astype(np.float32)
        info |= self.mac.judge(episodes)
        stats = EpisodeStats(
            copies=copies,
            returns=returns,
            team_returns=self._team_reward(returns).astype(np.float32),
            lengths=self._staging.lengths(copies),
            truncated=step.truncated[copies],
            info=info,
        )
        return Finished(episodes, stats)

    def state_dict(self) -> dict[str, Any]:
        """Everything the loop holds. An environment that cannot be copied in mid-episode abandons
        its running episodes here, so that the run that goes on equals the one that resumes."""
        if not self.env.exact_snapshots:
            self._restart_with(self.env.restart())
        return {
            "env": _tensors(self.env.snapshot()),
            "staging": _tensors(self._staging.snapshot()),
            "carry": {name: value.cpu().clone() for name, value in self._carry.items()},
            "last_actions": torch.from_numpy(self._last_actions.copy()),
            "returns": torch.from_numpy(self._returns.copy()),
            "discounted": torch.from_numpy(self._discounted.copy()),
            "discount": torch.from_numpy(self._discount.copy()),
            "generator": self._generator.get_state(),
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._view = self._read(self.env.restore(_arrays(state["env"])))
        self._staging.restore(_arrays(state["staging"]))
        self._carry = {
            name: _widened(value, self._carry.get(name)).to(self._device)
            for name, value in state["carry"].items()
        }
        self._last_actions = state["last_actions"].numpy().copy()
        self._returns = state["returns"].numpy().copy()
        self._discounted = state["discounted"].numpy().copy()
        self._discount = state["discount"].numpy().copy()
        self._generator.set_state(state["generator"])
        self._rng.bit_generator.state = state["rng"]


def _widened(saved: torch.Tensor, now: torch.Tensor | None) -> torch.Tensor:
    """What players remembered, with zeros in the columns that older versions did not keep."""
    missing = 0 if now is None or now.dim() < 3 else now.shape[-1] - saved.shape[-1]
    return torch.nn.functional.pad(saved, (0, missing)) if missing > 0 else saved


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Arrays as tensors, which load without unpickling code; torch lacks the wide unsigned
    types, so those keep their bits as int64 under a marked name."""
    out: dict[str, Any] = {}
    for name, value in arrays.items():
        array = np.ascontiguousarray(value).reshape(value.shape)
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            out[f"{name}|{array.dtype.name}"] = torch.from_numpy(
                array.view(f"int{8 * array.dtype.itemsize}").copy()
            )
        else:
            out[name] = torch.from_numpy(array.copy())
    return out


def _arrays(tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    out: dict[str, NDArray[Any]] = {}
    for key, value in tensors.items():
        name, _, dtype = key.partition("|")
        array = value.numpy()
        out[name] = array.view(dtype) if dtype else array
    return out


def finished_episodes(
    rollout: Rollout | Waves, episodes: int, env_steps: int
) -> Iterator[Finished]:
    """Step on and hand out what ends. Long before anybody who needs so many episodes should have
    stopped, an environment that never ends an episode is reported."""
    limit, copies = rollout.env.spec.episode_limit, rollout.env.n_copies
    budget = 2 * (-(-episodes // copies) + 1) * (limit + 1)
    while budget > 0:
        finished = rollout.step(env_steps)
        budget += rollout.dropped_last * (limit + 1) - 1
        if finished is not None:
            yield finished
    raise RunFailedError(
        f"{rollout.env.spec.name} did not end its episodes within {limit} steps. Run 'omg envs "
        "check' on it."
    )


def play_episodes(
    rollout: Rollout, n_episodes: int, *, round_number: int, env_steps: int
) -> list[Finished]:
    """Exactly n episodes. Every copy has a quota, so short episodes are not preferred."""
    n_copies = rollout.env.n_copies
    quota = np.full(n_copies, n_episodes // n_copies)
    quota[: n_episodes % n_copies] += 1
    rollout.begin(round_number)
    counted: list[Finished] = []
    for finished in finished_episodes(rollout, n_episodes, env_steps):
        copies = finished.stats.copies
        wanted = quota[copies] > 0
        quota[copies[wanted]] -= 1
        if wanted.any():
            counted.append(finished.take(np.flatnonzero(wanted)))
        if not quota.any():
            break
    return counted


def run_test(
    rollout: Rollout, n_episodes: int, *, round_number: int, env_steps: int
) -> EpisodeStats:
    """Play n episodes and sum them up."""
    played = play_episodes(rollout, n_episodes, round_number=round_number, env_steps=env_steps)
    return concatenate([finished.stats for finished in played])
