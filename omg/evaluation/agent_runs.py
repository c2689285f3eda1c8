"""Finished runs of learning agents: what a run's folder says, and the agent at a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from omg.components.scheme import environment_scheme
from omg.components.seeding import SeedTree
from omg.config.arguments import Arguments
from omg.config.loader import load_saved
from omg.config.schema import Config
from omg.config.team import parse_team
from omg.controllers.multi_module import MultiModuleMAC
from omg.controllers.roster import Roster, learning_role, pool_roster
from omg.envs.contract import BatchedEnv
from omg.envs.registry import environment_class, make_batched
from omg.modules.speed import set_up_torch
from omg.opponents.pool import LineupMode, OpponentPool, PoolMember
from omg.runners import RUNNERS
from omg.runners.builders import copies_in_tests
from omg.runners.rollout import Rollout
from omg.storage.files import read_json
from omg.storage.models import META, check_meta, holds_models, load_networks, saved_steps
from omg.types import EnvSpec, OmgError

MAC = "multi_module_mac"
# Copies that are stepped together where stepping many costs little.
NATIVE_COPIES = 512


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A learning agent as its run left it."""

    folder: Path
    config: Config
    model: Path
    method: str
    env_steps: int
    met: frozenset[str] = frozenset()  # ids of the players it was trained with

    @property
    def id(self) -> str:
        """The method and the seed, as in the name of a file."""
        return f"{slug(self.method)}-s{self.config.seed}"


def slug(text: str) -> str:
    """Text as a part of a file's name: 'OMG tuned' -> 'omg_tuned'."""
    return re.sub(r"[^a-z0-9.+-]+", "_", text.lower()).strip("_") or "agent"


def read_agent_run(folder: Path, which: str = "last") -> AgentRun:
    """Read a run's configuration and find its weights: `last`, `best` or a saved step."""
    folder = folder.expanduser()
    if not (folder / "config.yaml").is_file():
        raise OmgError(f"{folder} is not a run (no config.yaml in it). Give the folder of a run.")
    config = load_saved(folder / "config.yaml", Arguments()).config
    if config.mac != MAC:
        raise OmgError(
            f"{folder} trained a whole team (mac={config.mac}), and only one agent among others "
            f"can be evaluated. Give a run with mac={MAC}, e.g. --config=iql_am; a team can be "
            "an opponent: omg pool add."
        )
    if config.learner == "am_learner":
        raise OmgError(
            f"{folder} trained a subgoal prior, not an agent. Give a run that used the prior "
            "(init_param_path)."
        )
    model = _model_folder(folder, which)
    meta = read_json(model / META) if (model / META).is_file() else {}
    return AgentRun(
        folder=folder,
        config=config,
        model=model,
        method=config.label or config.name,
        env_steps=int(meta.get("env_steps", 0)),
        met=frozenset(map(str, meta.get("players", ()))),
    )


def _model_folder(run: Path, which: str) -> Path:
    models = run / "models"
    steps = [step for step in saved_steps(models) if holds_models(models / str(step))]
    named = [name for name in ("last", "best") if holds_models(models / name)]
    if not (steps or named):
        raise OmgError(f"{run} has no saved model. Train it with save_model=true, or give another.")
    if which in (*named, *map(str, steps)):
        return models / which
    if which == "last" and steps:  # stopped before it was written
        return models / str(steps[-1])
    raise OmgError(
        f"{run} has no model '{which}'. It has: {', '.join([*named, *map(str, steps)])}."
    )


def check_pool(agent: AgentRun, pool: OpponentPool) -> None:
    """Agent and pool must play the same game; whether a member's inputs fit is checked later."""
    for member in pool.members():
        if member.env != agent.config.env:
            raise OmgError(
                f"{agent.folder} plays env={agent.config.env}, {pool.path} holds opponents for "
                f"env={member.env}. Use a pool of the run's environment."
            )


def _at_a_table(config: Config, pool: OpponentPool) -> Config:
    """The configuration of a test: others from the pool without exploration, and a learning seat
    that goes round. An agent that was trained in one seat only keeps it."""
    seat = config.agent_shift
    if config.multi_algs:
        seat = parse_team(config.team, [config.train_alg, *config.team_algs]).index(
            config.train_alg
        )
    changes = {
        "opponent_pool": str(pool.path),
        "multi_algs": False,
        "agent_shift": seat,
        "agent_shift_mode": "rotate",
        "opponent_epsilon": 0.0,
    }
    return Config.model_validate({**config.as_dict(), **changes})


def role_of(agent: AgentRun, pool: OpponentPool, spec: EnvSpec) -> str:
    """The role an agent plays; empty where seats have none."""
    return learning_role(_at_a_table(agent.config, pool), spec)


def _copies(config: Config, episodes: int, seats: int) -> int:
    """How many copies play a cell: one per episode if possible. A multiple of the seats that the
    agent takes in turn, so that every seat gets its share of the episodes."""
    kind = environment_class(config.env)
    native = isinstance(kind, type) and issubclass(kind, BatchedEnv)
    most = NATIVE_COPIES if native and config.runner != "parallel" else copies_in_tests(config)
    return episodes if episodes <= most else max(1, most // seats) * seats


class SeatedAgent:
    """A learning agent with its weights, ready to play with members of a pool. A context: it holds
    copies of the environment."""

    def __init__(
        self,
        agent: AgentRun,
        pool: OpponentPool,
        members: Sequence[PoolMember],
        *,
        episodes: int,
        seed: int,
        device: torch.device,
    ) -> None:
        check_pool(agent, pool)
        self.agent, self.pool, self.device = agent, pool, device
        self.config = _at_a_table(agent.config, pool)
        self.seeds = SeedTree(seed)
        set_up_torch(self.config)
        probe = make_batched(self.config.env, self.config.env_args, n_copies=1)
        self.spec: EnvSpec = probe.spec
        probe.close()
        self.mac = self._loaded_mac(members)
        copies = _copies(self.config, episodes, len(self.mac.roster.own_seats))
        self.env = RUNNERS[self.config.runner](self.config, copies)

    def __enter__(self) -> SeatedAgent:
        return self

    def __exit__(self, *exc: object) -> None:
        self.env.close()

    def _loaded_mac(self, members: Sequence[PoolMember]) -> MultiModuleMAC:
        mac = MultiModuleMAC(
            config=self.config,
            spec=self.spec,
            device=self.device,
            roster=self.roster(members),
        )
        spec = self.spec
        shapes = {key: getattr(spec, key) for key in ("n_agents", "n_actions", "obs_dim")}
        shapes["state_dim"] = spec.state_dim
        wanted = {"env": self.config.env, "shapes": shapes, "policy": mac.describe()}
        check_meta(self.agent.model, wanted)
        load_networks(self.agent.model, mac.networks())
        return mac

    def roster(self, members: Sequence[PoolMember], mode: LineupMode = "homologue") -> Roster:
        """Members as players; with one of them, that one takes every other seat."""
        config = Config.model_validate({**self.config.as_dict(), "lineup_mode": mode})
        return pool_roster(config, self.spec, self.device, self.pool, members)

    def rollout(
        self,
        roster: Roster,
        *,
        stream: str,
        env: BatchedEnv | None = None,
        greedy: bool = True,
        record: bool = True,
        common_reward: bool = False,
        permute: bool = False,
    ) -> Rollout:
        """Games with these players. What happens depends on the seed, the stream and who plays:
        not on the games played before. With `record`, inferences are stored and judged."""
        mac = self.mac.with_roster(roster)
        mac = mac.recording() if record else mac
        mac = mac.permuting() if permute else mac
        scheme = environment_scheme(
            self.spec, common_reward=common_reward, buffer_dtype=self.config.buffer_dtype
        )
        return Rollout(
            env=env or self.env,
            mac=mac,
            scheme=scheme.extend(mac.record_fields()),
            seeds=self.seeds,
            stream=stream,
            device=self.device,
            common_reward=common_reward,
            reward_scalarisation=self.config.reward_scalarisation,
            gamma=self.config.gamma,
            greedy=greedy,
        )
