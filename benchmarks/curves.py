"""What `benchmarks.scale` measures: quantities that grow, and what is done at each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import omg, ours
from benchmarks.training import CPU, Training, config_of
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.trajectories import ReplayBuffer
from omg.controllers.team import MultiModuleMAC
from omg.envs.registry import make_batched
from omg.opponents.lineups import LineUp
from omg.policies.inputs import StepView

FORAGING = ("--env-config=foraging", f"--env_args.key={ours.KEY}")
Call = Callable[[], object]


@dataclass(frozen=True)
class Curve:
    """One thing that is done at several sizes; `make` builds it for a size and gives the call that
    is timed. `because`: why it may grow faster than linearly. `exact`: bytes by arithmetic; else
    memory is the growth of a process that builds it and calls it."""

    quantity: str  # what grows
    what: str
    sizes: Sequence[int]
    make: Callable[[int], Call]
    because: str = ""
    exact: Callable[[int], int] | None = None


def environment_step(copies: int) -> Call:
    """One step of Foraging in all copies."""
    env = make_batched("foraging", {"key": ours.KEY}, n_copies=copies)
    env.reset(0)
    drawn = iter_actions(copies, env.spec.n_agents, env.spec.n_actions)
    return lambda: env.step(next(drawn))


def iter_actions(copies: int, agents: int, actions: int) -> Iterator[NDArray[np.int64]]:
    """Random joint actions without end, drawn beforehand."""
    drawn = np.random.default_rng(0).integers(0, actions, (16, copies, agents))
    while True:
        yield from drawn


def rollout_step(copies: int) -> Call:
    """Acting, environment and storing of QMIX-RNN in all copies."""
    training = Training(config_of(("--config=qmix", *FORAGING, f"--batch_size_run={copies}")))
    return lambda: training.rollout.step(0)


def _spread(agents: int) -> tuple[str, ...]:
    return ("--config=qmix", "--env-config=spread", f"--env_args.n_agents={agents}")


def spread_step(agents: int) -> Call:
    """One step of Spread in 64 copies."""
    env = make_batched("spread", {"n_agents": agents}, n_copies=64)
    env.reset(0)
    drawn = iter_actions(64, agents, env.spec.n_actions)
    return lambda: env.step(next(drawn))


def spread_rollout(agents: int) -> Call:
    """Acting, environment and storing of QMIX-RNN in 64 copies of Spread."""
    training = Training(config_of((*_spread(agents), "--batch_size_run=64")))
    return lambda: training.rollout.step(0)


def _update(words: Sequence[str], lineup: LineUp | None = None) -> Call:
    training = Training(config_of(words), lineup=lineup)
    batch = training.whole_batch()
    return lambda: training.update(batch)


def spread_update(agents: int) -> Call:
    """A QMIX-RNN update on 32 episodes of Spread."""
    return _update((*_spread(agents), "--batch_size_run=32"))


def hidden_update(hidden: int) -> Call:
    """A QMIX-RNN update on 32 episodes of Foraging."""
    return _update(("--config=qmix", *FORAGING, f"--rnn_hidden_dim={hidden}"))


def horizon_update(horizon: int) -> Call:
    """An OMG update on 64 episodes of Foraging."""
    words = ("--config=iql_omg", f"--subgoal_horizon={horizon}", *FORAGING)
    return _update(words, omg.lineup(omg.foraging_spec()))


def load_everything() -> None:
    """Small updates, so that modules and kernels are loaded before memory is looked at."""
    few = ("--batch_size=1", "--batch_size_run=1", "--rnn_hidden_dim=32")
    _update(("--config=qmix", *FORAGING, *few))()
    _update(("--config=iql_omg", *FORAGING, *few), omg.lineup(omg.foraging_spec(), size=1))()


def _buffer(capacity: int) -> ReplayBuffer:
    scheme = environment_scheme(ours.foraging_spec(), common_reward=True)
    return ReplayBuffer(scheme, capacity=capacity, max_seq_length=51)


def buffer_bytes(capacity: int) -> int:
    """Bytes of a full buffer of so many episodes."""
    return _buffer(capacity).byte_estimate()


def _episodes(buffer: ReplayBuffer, count: int) -> EpisodeBatch:
    batch = EpisodeBatch(buffer.scheme, batch_size=count, max_seq_length=51)
    rng = np.random.default_rng(0)
    for name in ("obs", "state"):
        batch.update({name: rng.integers(1, 8, batch.raw(name).shape)})
    batch.update({"actions": rng.integers(1, 6, batch.raw("actions").shape)})
    return batch


def _filled(capacity: int) -> ReplayBuffer:
    buffer = _buffer(capacity)
    episodes = _episodes(buffer, 128)
    while buffer.episodes_in_buffer < capacity:
        buffer.insert_episode_batch(episodes)
    return buffer


def buffer_sample(capacity: int) -> Call:
    """A batch of 32 episodes from a full buffer."""
    buffer, rng = _filled(capacity), np.random.default_rng(0)
    return lambda: buffer.sample(32, rng)


def buffer_insert(capacity: int) -> Call:
    """16 episodes into a full buffer."""
    buffer = _filled(capacity)
    episodes = _episodes(buffer, 16)
    return lambda: buffer.insert_episode_batch(episodes)


def pool_acting(members: int) -> Call:
    """Choosing actions in 256 games against opponents drawn from a pool of so many networks."""
    spec = omg.foraging_spec()
    config = config_of((*omg.IQL, *FORAGING))
    torch.manual_seed(0)
    mac = MultiModuleMAC(
        config=config, spec=spec, device=CPU, lineup=omg.lineup(spec, size=members)
    )
    seen = make_batched("foraging", {"key": ours.KEY}, n_copies=256).reset(0)
    view = StepView(
        obs=torch.from_numpy(seen.obs),
        state=torch.from_numpy(seen.state),
        avail=torch.from_numpy(seen.avail),
        last_actions=torch.zeros(256, spec.n_agents, dtype=torch.int64),
    )
    carry = mac.initial_carry(256)
    mac.begin_episodes(carry, np.arange(256), np.random.default_rng(0))
    generator = torch.Generator().manual_seed(0)

    @torch.inference_mode()
    def act() -> object:
        return mac.act(view, carry, env_steps=0, greedy=False, generator=generator)

    return act


def _powers(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


COPIES, AGENTS, HIDDEN = _powers(1, 4096, 4), _powers(2, 32), _powers(16, 512)
BUFFER, POOL, HORIZON = _powers(128, 32768, 4), _powers(1, 256, 4), _powers(1, 32)
SEES_ALL = (
    "every agent sees every other one and every landmark, so that the observations of N agents "
    "have N x (6 N) numbers, and all pairs can collide"
)
WEIGHTS = "a GRU of width h has 6 h² weights, and each is used once per row"

CURVES = (
    Curve("copies", "environment step, Foraging", COPIES, environment_step),
    Curve("copies", "rollout step, QMIX-RNN on Foraging", COPIES, rollout_step),
    Curve("agents", "environment step, Spread, 64 copies", AGENTS, spread_step, SEES_ALL),
    Curve("agents", "rollout step, QMIX-RNN on Spread", AGENTS, spread_rollout, SEES_ALL),
    Curve("agents", "update, QMIX-RNN on Spread, 32 x 26", AGENTS, spread_update, SEES_ALL),
    Curve("hidden", "update, QMIX-RNN on Foraging, 32 x 50", HIDDEN, hidden_update, WEIGHTS),
    Curve("buffer", "sampling 32 episodes", BUFFER, buffer_sample, exact=buffer_bytes),
    Curve("buffer", "storing 16 episodes", BUFFER, buffer_insert, exact=buffer_bytes),
    Curve("pool", "acting in a mixed team, 256 copies", POOL, pool_acting),
    Curve("horizon", "update, OMG on Foraging, 64 x 50", HORIZON, horizon_update),
)
AXES = {
    "copies": "copies of the game",
    "agents": "agents",
    "hidden": "hidden size",
    "buffer": "episodes in the buffer",
    "pool": "networks in the pool",
    "horizon": "horizon H",
}
