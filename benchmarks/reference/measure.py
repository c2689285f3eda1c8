"""Speeds of the classical baseline, and a check that it learns."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median

import torch
from torch.nn import functional

from benchmarks.clock import now

from .episode_data import EpisodeBatch, ReplayBuffer, Sizes
from .loop import DEFAULT_ENV, Controller, Epsilon, ForagingTask, Runner
from .qmix import QmixLearner


def _runner(*, env_id: str, seed: int, epsilon: Epsilon, obs_scale: float = 1.0) -> Runner:
    torch.manual_seed(seed)
    task = ForagingTask(env_id=env_id, seed=seed, obs_scale=obs_scale)
    return Runner(task=task, controller=Controller(sizes=task.sizes), epsilon=epsilon)


def measure_rollout(seconds: float, *, env_id: str = DEFAULT_ENV, seed: int = 0) -> float:
    """Environment steps per second of playing alone, over whole episodes."""
    runner = _runner(env_id=env_id, seed=seed, epsilon=Epsilon())
    runner.run_episode()
    steps, start = 0, now()
    while now() - start < seconds:
        steps += runner.run_episode()
    return steps / (now() - start)


def synthetic_batch(sizes: Sizes, *, batch_size: int, seed: int = 0) -> EpisodeBatch:
    """Episodes of full length with random contents and nothing masked."""
    generator = torch.Generator().manual_seed(seed)
    batch = EpisodeBatch(sizes=sizes, n_episodes=batch_size)
    for key in ("state", "obs", "reward"):
        batch[key].normal_(generator=generator)
    batch["actions"].random_(0, sizes.n_actions, generator=generator)
    batch["actions_onehot"].copy_(functional.one_hot(batch["actions"].squeeze(3), sizes.n_actions))
    batch["avail_actions"].fill_(1)
    batch["filled"].fill_(1)
    batch["terminated"][:, -2] = 1
    return batch


def measure_update(
    *,
    batch_size: int = 32,
    seq: int = 50,
    n_agents: int = 2,
    obs_size: int = 15,
    n_actions: int = 6,
    state_size: int | None = None,
    n: int = 20,
    warmup: int = 3,
    seed: int = 0,
) -> float:
    """Seconds per QMIX update, the median of ``n``; ``seq`` transitions, so ``seq + 1`` slots.

    Sampling from the buffer is not part of it. Sizes are those of the default environment; the
    state is the concatenation of the observations unless ``state_size`` says otherwise.
    """
    torch.manual_seed(seed)
    sizes = Sizes(
        n_agents=n_agents,
        obs_size=obs_size,
        state_size=n_agents * obs_size if state_size is None else state_size,
        n_actions=n_actions,
        episode_limit=seq,
    )
    batch = synthetic_batch(sizes, batch_size=batch_size, seed=seed)
    learner = QmixLearner(controller=Controller(sizes=sizes))
    times = []
    for i in range(warmup + n):
        start = now()
        learner.train(batch, episode=i)
        times.append(now() - start)
    return median(times[warmup:])


def measure_training(
    seconds: float, *, env_id: str = DEFAULT_ENV, batch_size: int = 32, seed: int = 0
) -> float:
    """Environment steps per second with one update per episode, over so many seconds.

    The buffer is first filled to ``batch_size`` episodes and one update made, both untimed.
    """
    runner = _runner(env_id=env_id, seed=seed, epsilon=Epsilon())
    learner = QmixLearner(controller=runner.controller)
    buffer = ReplayBuffer(sizes=runner.task.sizes, seed=seed)
    while not buffer.can_sample(batch_size):
        runner.run_episode()
        buffer.insert(runner.batch)
    learner.train(buffer.sample(batch_size), episode=0)
    steps, episode, start = 0, batch_size, now()
    while now() - start < seconds:
        steps += runner.run_episode()
        buffer.insert(runner.batch)
        learner.train(buffer.sample(batch_size), episode=episode)
        episode += 1
    return steps / (now() - start)


@dataclass(frozen=True, kw_only=True)
class LearningResult:
    """What a training run came to; returns are means over greedy episodes."""

    return_before: float
    return_after: float
    env_steps: int
    episodes: int
    seconds: float
    curve: tuple[tuple[int, float], ...]


def learn(
    *,
    env_id: str = "Foraging-5x5-2p-1f-v3",
    env_steps: int = 40_000,
    anneal_steps: int = 10_000,
    batch_size: int = 32,
    test_episodes: int = 100,
    points: int = 8,
    obs_scale: float = 1.0,
    target_update_interval: int = 200,
    seed: int = 0,
) -> LearningResult:
    """Train for ``env_steps``; ``curve`` holds (env steps, greedy return over 20 episodes).

    The defaults are the classical settings on raw observations. With them action values overshoot
    the possible return and nothing was learnt within 70,000 steps; ``obs_scale=0.2`` together with
    ``target_update_interval=50`` did learn (one seed). Speeds are measured with the defaults.
    """

    def greedy_return(count: int) -> float:
        returns = []
        for _ in range(count):
            runner.run_episode(test=True)
            returns.append(runner.episode_return)
        return mean(returns)

    epsilon = Epsilon(anneal_steps=anneal_steps)
    runner = _runner(env_id=env_id, seed=seed, epsilon=epsilon, obs_scale=obs_scale)
    learner = QmixLearner(
        controller=runner.controller, target_update_interval=target_update_interval
    )
    buffer = ReplayBuffer(sizes=runner.task.sizes, seed=seed)
    before, episode = greedy_return(test_episodes), 0
    curve: list[tuple[int, float]] = []
    start = now()
    while runner.env_steps < env_steps:
        runner.run_episode()
        buffer.insert(runner.batch)
        episode += 1
        if buffer.can_sample(batch_size):
            learner.train(buffer.sample(batch_size), episode=episode)
        if runner.env_steps >= (len(curve) + 1) * env_steps / points:
            curve.append((runner.env_steps, greedy_return(20)))
    seconds = now() - start
    return LearningResult(
        return_before=before,
        return_after=greedy_return(test_episodes),
        env_steps=runner.env_steps,
        episodes=episode,
        seconds=seconds,
        curve=tuple(curve),
    )
