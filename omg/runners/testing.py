"""Tests: a fixed number of episodes on copies of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omg.runners.rollout import EpisodeStats, Finished, Rollout
from omg.runners.waves import Waves
from omg.types import FloatArray, IntArray, RunFailedError


@dataclass(frozen=True, slots=True)
class TestResult:
    """Numbers of the counted episodes, one row each."""

    __test__ = False  # not a pytest class

    returns: FloatArray  # [E, N]
    team_returns: FloatArray  # [E]
    lengths: IntArray  # [E]
    truncated: NDArray[np.bool_]  # [E]
    info: dict[str, FloatArray]

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


def concatenate(stats: list[EpisodeStats]) -> TestResult:
    """One table of all episodes."""
    return TestResult(
        returns=np.concatenate([s.returns for s in stats]),
        team_returns=np.concatenate([s.team_returns for s in stats]),
        lengths=np.concatenate([s.lengths for s in stats]),
        truncated=np.concatenate([s.truncated for s in stats]),
        info={name: np.concatenate([s.info[name] for s in stats]) for name in stats[0].info},
    )


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


def run_test(rollout: Rollout, n_episodes: int, *, round_number: int, env_steps: int) -> TestResult:
    """Play n episodes and sum them up."""
    played = play_episodes(rollout, n_episodes, round_number=round_number, env_steps=env_steps)
    return concatenate([finished.stats for finished in played])
