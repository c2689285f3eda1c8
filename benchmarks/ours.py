"""Our side of the comparisons."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from statistics import median

import numpy as np
import torch

from benchmarks.clock import now
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import ReplayBuffer
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.envs.registry import make_batched
from omg.learners.base import Progress
from omg.learners.q_learner import QLearner
from omg.modules.device import kernel_threads, tune_allocator, use_threads
from omg.modules.kernels.gru import GRUCore
from omg.runners.rollout import Rollout
from omg.types import EnvSpec

KEY = "Foraging-8x8-2p-3f-v3"
CPU = torch.device("cpu")


def foraging_config() -> Config:
    """QMIX-RNN: 16 copies, batches of 32 episodes, hidden 64, one update per episode."""
    words = ["--config=qmix", "--env-config=foraging", f"--env_args.key={KEY}"]
    return load_command_line(words).config


def foraging_spec() -> EnvSpec:
    """The sizes of that game."""
    return make_batched("foraging", {"key": KEY}, n_copies=1).spec


def foraging_steps(copies: int, seconds: float) -> float:
    """Steps per second of the native game with random actions, restarts included."""
    env = make_batched("foraging", {"key": KEY}, n_copies=copies)
    env.reset(0)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 6, (64, copies, 2))
    steps, start = 0, now()
    while now() - start < seconds:
        for act in actions:
            env.step(act)
        steps += len(actions) * copies
    return steps / (now() - start)


@cache
def _reference_game() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnasium
        import lbforaging  # noqa: F401 - registers the ids

        return gymnasium.make(KEY, disable_env_checker=True).unwrapped


def lbforaging_steps(seconds: float) -> float:
    """The same with the reference package."""
    game = _reference_game()
    game.reset(seed=0)  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 6, (4096, 2))
    steps, start = 0, now()
    while now() - start < seconds:
        for act in actions[:256]:
            _, _, done, cut, _ = game.step(act)  # type: ignore[attr-defined]
            if done or cut:
                game.reset()  # type: ignore[attr-defined]
        steps += 256
    return steps / (now() - start)


def _rollout(config: Config, copies: int) -> Rollout:
    torch.manual_seed(0)
    env = make_batched(config.env, config.env_args, n_copies=copies)
    return Rollout(
        env=env,
        mac=BasicMAC(config=config, spec=env.spec, device=CPU),
        scheme=environment_scheme(env.spec, common_reward=True),
        seeds=SeedTree(0),
        stream="train",
        device=CPU,
        common_reward=True,
        reward_scalarisation="sum",
    )


def rollout_steps(copies: int, seconds: float) -> float:
    """Steps per second of playing and storing, without learning."""
    rollout = _rollout(foraging_config(), copies)
    for _ in range(10):
        rollout.step(0)
    steps, start = 0, now()
    while now() - start < seconds:
        for _ in range(16):
            rollout.step(0)
        steps += 16 * copies
    return steps / (now() - start)


@contextmanager
def threads_of_a_run() -> Iterator[None]:
    """While open, the kernels have torch's threads, and its operations one, as in a run."""
    count = kernel_threads()
    use_threads(count, torch_too=count == 1)
    try:
        yield
    finally:
        use_threads(count, torch_too=True)


@threads_of_a_run()
def training_steps(
    seconds: float, config: Config | None = None, clock: Callable[[], float] = now
) -> float:
    """Steps per second with one update per episode, after the buffer holds a batch."""
    tune_allocator()
    config = config or foraging_config()
    rollout = _rollout(config, config.batch_size_run)
    mac = rollout.mac
    learner = QLearner(config=config, spec=rollout.env.spec, mac=mac, device=CPU)
    buffer = ReplayBuffer(
        environment_scheme(rollout.env.spec, common_reward=True),
        capacity=config.buffer_size,
        max_seq_length=rollout.env.spec.episode_limit + 1,
    )
    rng = np.random.default_rng(0)
    steps = episodes = 0
    start = clock()
    while clock() - start < seconds:
        finished = rollout.step(0)
        warming = not buffer.can_sample(config.batch_size)
        steps += rollout.env.n_copies
        if finished is not None:
            buffer.insert_episode_batch(finished.episodes)
            for _ in range(0 if warming else len(finished.episodes)):
                episodes += 1
                learner.train(
                    buffer.sample(config.batch_size, rng), Progress(steps, episodes, episodes)
                )
        if warming:
            steps, start = 0, clock()
    return steps / (clock() - start)


@threads_of_a_run()
def update_seconds(repeats: int) -> float:
    """Median time of one update on full-length episodes."""
    tune_allocator()
    config = foraging_config()
    env = make_batched(config.env, config.env_args, n_copies=1)
    spec = env.spec
    mac = BasicMAC(config=config, spec=spec, device=CPU)
    learner = QLearner(config=config, spec=spec, mac=mac, device=CPU)
    scheme = environment_scheme(spec, common_reward=True)
    batch = EpisodeBatch(scheme, batch_size=32, max_seq_length=51)
    rng = np.random.default_rng(0)
    batch.update(
        {
            "obs": rng.integers(0, 8, (32, 51, 2, spec.obs_dim)),
            "state": rng.integers(0, 8, (32, 51, spec.state_dim)),
            "actions": rng.integers(0, 6, (32, 51, 2)),
            "avail_actions": np.ones((32, 51, 2, 6), bool),
            "reward": rng.random((32, 51, 1)),
        }
    )
    times = []
    for episode in range(repeats + 3):
        start = now()
        learner.update(batch, Progress(0, episode, episode))
        times.append(now() - start)
    return median(times[3:])


def gru_passes(*, own: bool) -> float:
    """Forward + backward passes per second, 64 rows x 51 steps x 64, input gradient included;
    memory is kept as in training."""
    tune_allocator()
    torch.manual_seed(0)
    core, torchs = GRUCore(64, 64), torch.nn.GRU(64, 64)
    inputs = torch.randn(51, 64, 64, requires_grad=True)
    hidden, sizes = torch.zeros(64, 64), torch.full((51,), 64)
    times = []
    for _ in range(15):
        start = now()
        if own:
            out = core.unroll_packed(inputs.flatten(0, 1), sizes, hidden)
        else:
            out = torchs(inputs, hidden.unsqueeze(0))[0]
        out.sum().backward()
        times.append(now() - start)
    return 1 / median(times[3:])


def stored_bytes() -> int:
    """Bytes per stored step of Foraging-8x8-2p-3f."""
    return environment_scheme(foraging_spec(), common_reward=True).bytes_per_step()
