"""Walkers for tests of MOA: each goes for one end of a line, in episodes made without a game."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from omg.components.episodes import ALIVE, REACHED, EpisodeBatch, environment_scheme
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import MultiModuleMAC
from omg.opponents.lineups import EveryoneLearns, LineUp
from omg.types import EnvSpec

from .small_learners import alone, join

CPU = torch.device("cpu")
STAY, LEFT, RIGHT = range(3)
MIDDLE, LAST = 4, 8
SPEC = EnvSpec(
    name="walkers",
    n_agents=3,
    n_actions=3,
    obs_dim=LAST + 1,
    state_dim=3,
    episode_limit=12,
    leavers=True,
    goals=("left", "right"),
    agent_features=((0,), (1,), (2,)),
)


def config_of(*words: str, alg: str = "iql_moa") -> Config:
    small = ("--am_hidden_dim=32", "--rnn_hidden_dim=8", "--moa_lr=0.01", "--moa_min_size=1")
    return load_command_line([f"--config={alg}", *small, *words]).config


def team(config: Config, *, one: bool = False, spec: EnvSpec = SPEC) -> MultiModuleMAC:
    """Every seat models the others, or one does."""
    torch.manual_seed(0)
    lineup: LineUp = alone(spec) if one else EveryoneLearns(spec)
    return MultiModuleMAC(config=config, spec=spec, device=CPU, lineup=lineup)


def walk(
    wants: Sequence[Sequence[int]], rng: np.random.Generator, *, wait: float = 0.2
) -> dict[str, np.ndarray]:
    """An episode of 3 walkers from the middle; wants[n][t] is the end that walker n goes for at
    time t (the last one stays). Each waits now and then. Who arrives leaves."""
    agents, limit = SPEC.n_agents, SPEC.episode_limit
    places = np.full(agents, MIDDLE)
    alive = np.ones(agents, np.bool_)
    slots: dict[str, list[np.ndarray]] = {
        name: [] for name in ("state", "obs", "avail_actions", "actions", ALIVE, REACHED)
    }
    ended = False
    for time in range(limit + 1):
        obs = np.eye(LAST + 1, dtype=np.float32)[places] * alive[:, None]
        avail = np.ones((agents, 3), np.bool_)
        avail[~alive] = np.arange(3) == STAY
        actions, reached = np.zeros(agents, np.int64), np.full(agents, -1)
        if time < limit and not ended:
            for n in range(agents):
                goal = wants[n][min(time, len(wants[n]) - 1)]
                if alive[n] and rng.random() >= wait:
                    actions[n] = (LEFT, RIGHT)[goal]
        slots["state"].append(places.astype(np.float32))
        slots["obs"].append(obs)
        slots["avail_actions"].append(avail)
        slots[ALIVE].append(alive.copy())
        places = places + np.array([0, -1, 1])[actions]
        arrived = alive & ((places == 0) | (places == LAST))
        reached[arrived] = places[arrived] // LAST
        slots["actions"].append(actions)
        slots[REACHED].append(reached)
        if ended:
            break
        alive = alive & ~arrived
        ended = not alive.any()
    episode = {name: np.stack(values) for name, values in slots.items()}
    count = len(episode["actions"])
    episode["reward"] = np.zeros((count, agents), np.float32)
    episode["terminated"] = (np.arange(count) == count - 2) & ended
    return episode


def episodes(
    mac: MultiModuleMAC, played: Sequence[dict[str, np.ndarray]], seats: Sequence[int] | None = None
) -> EpisodeBatch:
    """As the run of this team would have stored them; `seats`: who learned in each."""
    scheme = environment_scheme(SPEC, common_reward=False).extend(mac.record_fields())
    if seats is not None:
        played = [{**e, "agent_idx": np.array(s)} for e, s in zip(played, seats, strict=True)]
    return join(scheme, played)


def random_walks(count: int, seed: int = 0, wait: float = 0.2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [walk(rng.integers(0, 2, (3, 1)).tolist(), rng, wait=wait) for _ in range(count)]
