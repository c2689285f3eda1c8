"""Finished runs of learning agents: what a run's folder says, and the agent at a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from omg.components.seeding import SeedTree
from omg.config.schema import Config
from omg.config.team import parse_team
from omg.controllers import CONTROLLERS
from omg.controllers.team import TeamMAC
from omg.envs.contract import BatchedEnv
from omg.envs.registry import environment_class, make_batched
from omg.experiment.trained import TrainedRun, load_players, read_run
from omg.modules.device import set_up_torch
from omg.opponents.building import learning_role, pool_lineup
from omg.opponents.lineups import LineupMode, OneLearns
from omg.opponents.pool import OpponentPool, PoolMember
from omg.opponents.unseen import record_seated, recorded
from omg.runners import Runner, runner_of
from omg.runners.assembly import make_rollout
from omg.runners.rollout import Rollout
from omg.storage.models import weights_hash
from omg.types import EnvSpec, OmgError

# Copies that are stepped together where stepping many costs little.
NATIVE_COPIES = 512


@dataclass(frozen=True, slots=True)
class AgentRun(TrainedRun):
    """A learning agent as its run left it."""

    @property
    def method(self) -> str:
        """What its seeds have in common."""
        return self.config.label or self.config.name

    @property
    def met(self) -> frozenset[str]:
        """Ids of the players it was trained with."""
        return frozenset(map(str, self.meta.get("players", ())))

    @property
    def id(self) -> str:
        """The method and the seed, as in the name of a file."""
        return f"{slug(self.method)}-s{self.config.seed}"


def slug(text: str) -> str:
    """Text as a part of a file's name: 'OMG tuned' -> 'omg_tuned'."""
    return re.sub(r"[^a-z0-9.+-]+", "_", text.lower()).strip("_") or "agent"


def read_agent_run(folder: Path, which: str = "last") -> AgentRun:
    """A run that trained an agent which can sit among others."""
    run = read_run(folder, which)
    if not CONTROLLERS[run.config.mac].models:
        raise OmgError(
            f"{run.folder} trained a whole team (mac={run.config.mac}), and only one agent among "
            "others can be evaluated. Give a run with mac=multi_module_mac, e.g. --config=iql_am; "
            "a team can be an opponent: omg pool add."
        )
    return AgentRun(run.folder, run.config, run.model, run.meta)


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


def copies_for(runner: Runner, episodes: int, seats: int) -> int:
    """How many copies play a cell: one per episode if possible. A multiple of the seats that the
    agent takes in turn, so that every seat gets its share of the episodes."""
    kind = environment_class(runner.config.env)
    native = isinstance(kind, type) and issubclass(kind, BatchedEnv)
    most = NATIVE_COPIES if native and runner.in_process else runner.n_tests
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
        self.episodes, self.seed, self.seeds = episodes, seed, SeedTree(seed)
        set_up_torch(self.config)
        probe = make_batched(self.config.env, self.config.env_args, n_copies=1)
        self.spec: EnvSpec = probe.spec
        probe.close()
        lineup = self.lineup(members)
        mac = load_players(agent, self.spec, device, config=self.config, lineup=lineup)
        assert isinstance(mac, TeamMAC)
        self.mac = mac
        self.runner = runner_of(self.config)
        self.env = self.runner.copies(copies_for(self.runner, episodes, len(lineup.own_seats)))

    def __enter__(self) -> SeatedAgent:
        return self

    def __exit__(self, *exc: object) -> None:
        self.env.close()

    def lineup(self, members: Sequence[PoolMember], mode: LineupMode = "homologue") -> OneLearns:
        """Members as the others; one member alone takes every other seat. Held-out ones are a look:
        this one, unless the caller records it."""
        record_seated(
            self.pool,
            members,
            runs=lambda: {str(self.agent.folder): weights_hash(self.agent.model)},
            episodes=self.episodes,
            options={"seed": self.seed, "lineup": mode},
        )
        config = Config.model_validate({**self.config.as_dict(), "lineup_mode": mode})
        with recorded():
            return pool_lineup(config, self.spec, self.device, (self.pool, members))

    def rollout(
        self,
        lineup: OneLearns,
        *,
        stream: str,
        env: BatchedEnv | None = None,
        greedy: bool = True,
        record: bool = True,
        common_reward: bool = False,
        permute: bool = False,
        learns: bool = False,
    ) -> Rollout:
        """Games with these players. What happens depends on the seed, the stream and who plays:
        not on the games played before. With `record`, inferences are stored and judged."""
        changes = {"record": True} if record else {}
        return make_rollout(
            self.config,
            env=env or self.env,
            mac=self.mac.sibling(lineup=lineup, permute=permute, **changes),
            stream=stream,
            device=self.device,
            greedy=greedy,
            seed=self.seed,
            common_reward=common_reward,
            learns=learns,
        )
