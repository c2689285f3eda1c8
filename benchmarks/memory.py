"""`python -m benchmarks.memory`: peak memory of a full buffer, against PyMARL's layout.

A task of 8 agents, 80 features and 120 steps, with the state and the actions of SMAC's 8m (168
numbers, 14 actions), and 5,000 episodes. Each side fills its buffer in a process of its own, with
random numbers in every slot, so that no page is left to the system's zeros, and samples a batch;
reported is the largest memory that the process ever had, Python and torch included.

Ours is measured as it comes (float32 observations), and with `buffer_dtype=float16`. Float32
observations alone are 61 % of PyMARL's bytes here, so that half of them needs 16 bits, or features
that are small integers, as Foraging's, which are kept in 8 bits by themselves.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

from benchmarks.reference import episode_data as pymarl
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.trajectories import ReplayBuffer
from omg.types import EnvSpec

AGENTS, FEATURES, STATE, ACTIONS, STEPS = 8, 80, 168, 14, 120
CAPACITY, AT_ONCE, BATCH = 5_000, 8, 32
SIDES = ("pymarl", "float32", "float16")


def _spec() -> EnvSpec:
    return EnvSpec(
        name="8 agents",
        n_agents=AGENTS,
        n_actions=ACTIONS,
        obs_dim=FEATURES,
        state_dim=STATE,
        episode_limit=STEPS,
    )


def fill_ours(dtype: str) -> None:
    """Fill our buffer, `AT_ONCE` episodes at a time, and sample."""
    scheme = environment_scheme(_spec(), common_reward=True, buffer_dtype=dtype)
    buffer = ReplayBuffer(scheme, capacity=CAPACITY, max_seq_length=STEPS + 1)
    rng, lead = np.random.default_rng(0), (AT_ONCE, STEPS + 1)
    while buffer.episodes_in_buffer < CAPACITY:
        batch = EpisodeBatch(scheme, batch_size=AT_ONCE, max_seq_length=STEPS + 1)
        batch.update(
            {
                "state": rng.random((*lead, STATE), np.float32),
                "obs": rng.random((*lead, AGENTS, FEATURES), np.float32),
                "actions": rng.integers(1, ACTIONS, (*lead, AGENTS)),
                "avail_actions": np.ones((*lead, AGENTS, ACTIONS), bool),
                "reward": rng.random((*lead, 1), np.float32),
                "terminated": np.zeros(lead, bool),
            }
        )
        buffer.insert_episode_batch(batch)
    buffer.sample(BATCH, rng)


def fill_pymarl() -> None:
    """Fill a buffer of PyMARL's layout as PyMARL does, and sample."""
    sizes = pymarl.Sizes(
        n_agents=AGENTS,
        obs_size=FEATURES,
        state_size=STATE,
        n_actions=ACTIONS,
        episode_limit=STEPS,
    )
    buffer = pymarl.ReplayBuffer(sizes=sizes, capacity=CAPACITY)
    batch = pymarl.EpisodeBatch(sizes=sizes, n_episodes=AT_ONCE)
    while buffer.count < CAPACITY:
        for name in ("state", "obs", "reward"):
            batch[name].uniform_()
        for name in ("actions", "avail_actions", "actions_onehot", "filled"):
            batch[name].fill_(1)
        buffer.insert(batch)
    buffer.sample(BATCH)


def peak_bytes() -> int:
    """The largest memory this process ever had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def measured(side: str) -> int:
    """Peak bytes of one side, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--side", side],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
    )
    return int(json.loads(done.stdout)["peak"])


def compared(side: str) -> dict[str, float]:
    """Megabytes of one of our sides and of PyMARL's layout."""
    mine, theirs = measured(side), measured("pymarl")
    return {"ours": mine / 2**20, "reference": theirs / 2**20, "ratio": mine / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--side", choices=SIDES, help="fill this one here, and print its peak")
    side = parser.parse_args().side
    if side is None:
        found = {name: measured(name) for name in SIDES}
        for name, peak in found.items():
            print(f"{name:12}{peak / 2**20:8,.0f} MB{peak / found['pymarl']:8.2f}")
        return
    torch.set_num_threads(1)
    if side == "pymarl":
        fill_pymarl()
    else:
        fill_ours(side)
    print(json.dumps({"peak": peak_bytes()}))


if __name__ == "__main__":
    main()
