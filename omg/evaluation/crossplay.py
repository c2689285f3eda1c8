"""Learning agents x opponents: every agent plays the same episodes against every opponent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import torch

from omg.config.schema import Config
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import (
    AgentRun,
    SeatedAgent,
    check_pool,
    read_agent_run,
    role_of,
)
from omg.evaluation.crossplay_jobs import Games, play_all
from omg.evaluation.crossplay_table import (
    FORMAT,
    Agent,
    Cell,
    Crossplay,
    Opponent,
    cell_metrics,
    known_metrics,
    permuted_metrics,
)
from omg.evaluation.finetune import Finetuner
from omg.evaluation.grouping import check_seeds, differing
from omg.evaluation.own_game import check_seed, with_places
from omg.evaluation.words import SIDES
from omg.opponents.pool import LineupMode, OpponentPool, PoolMember, Split
from omg.opponents.sides import completed
from omg.opponents.unseen import record_look, recorded
from omg.registry import nearest
from omg.runners.rollout import run_test
from omg.storage.models import read_meta, saved_steps, weights_hash
from omg.types import EnvSpec, OmgError, user_path

MIXED = "mixed"
LineupChoice: TypeAlias = Literal["auto", "homologue", "mixed", "both"]
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossplayPlan:
    """What is played."""

    splits: tuple[Split, ...] = ("heldout",)
    lineup: LineupChoice = "auto"
    episodes: int = 100
    finetune_episodes: int = 0
    seed: int = 0
    which: str = "last"
    greedy: bool | None = None  # None: as each is tested in training (`test_greedy`); False: as it
    # explored or sampled at the end of training
    permute: bool = False  # play every cell again, fed what is inferred in other episodes

    def acts_greedily(self, config: Config) -> bool:
        """Whether an agent takes its best action: as it plays, unless the plan says how."""
        return config.test_greedy if self.greedy is None else self.greedy

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise OmgError(f"episodes={self.episodes} is too few. Play at least one per cell.")
        if self.finetune_episodes < 0:
            raise OmgError(
                f"finetune-episodes={self.finetune_episodes} is not possible. Use 0 or more."
            )
        if self.lineup not in get_args(LineupChoice):
            raise OmgError(
                f"lineup={self.lineup} is not known. Choose {', '.join(get_args(LineupChoice))}."
            )
        check_seed(self.seed)


@dataclass(frozen=True, slots=True)
class Task:
    """A cell that every agent plays."""

    opponent: str
    members: tuple[PoolMember, ...]
    lineup: LineupMode
    split: Split

    @property
    def stream(self) -> str:
        """The name of its random streams: the same for every agent, its own for every opponent."""
        name = self.split if self.lineup == "mixed" else self.opponent
        return f"evaluation.{self.lineup}.{name}"


def read_agents(runs: Sequence[Path], which: str = "last") -> dict[str, AgentRun]:
    """Agents of runs by id. They must play one game. A method's runs must differ in their seeds,
    and in nothing else that may change a result."""
    if not runs:
        raise OmgError("There is no agent to evaluate. Give the folder of a run.")
    agents = [read_agent_run(run, which) for run in runs]
    ids: dict[str, AgentRun] = {}
    methods: dict[str, list[AgentRun]] = {}
    for agent in agents:
        game, first = _game(agent), _game(agents[0])
        if game != first:
            raise OmgError(
                f"{agent.folder} plays {game}, {agents[0].folder} plays {first}. Compare agents "
                "of one environment."
            )
        methods.setdefault(agent.method, []).append(agent)
        name, number = agent.id, 2
        while name in ids:  # methods whose names differ in case or punctuation only
            name, number = f"{agent.id}-{number}", number + 1
        ids[name] = agent
    for method, found in methods.items():
        check_seeds(method, [(agent.folder, agent.config.seed) for agent in found])
        if keys := differing([agent.config.as_dict() for agent in found]):
            raise OmgError(
                f"The runs of '{method}' differ in {', '.join(keys)}, so they are not seeds of one "
                "method. Give different methods different labels (label=…)."
            )
    return ids


def _game(agent: AgentRun) -> str:
    return f"{agent.config.env} {agent.config.as_dict()['env_args']}"


def open_pool(named: str | Path, agent: AgentRun) -> OpponentPool:
    """The pool named, or else the one the agent was trained with."""
    path = str(named or with_places(agent).opponent_pool)
    if not path:
        raise OmgError(
            f"{agent.folder} was not trained with a pool (opponent_pool). Give --pool=<folder>."
        )
    return OpponentPool.open(path)


def _may_sit(member: PoolMember, spec: EnvSpec, role: str) -> bool:
    """Whether there is a seat for a member beside an agent of that role."""
    free = list(spec.roles)
    if role in free:
        free.remove(role)
    return not member.roles or any(other in free for other in member.roles)


def tasks_of(pool: OpponentPool, plan: CrossplayPlan, spec: EnvSpec, role: str = "") -> list[Task]:
    """One cell per member that has a seat beside an agent of `role`, and one of drawn line-ups per
    side where there are several others. In a member's cell the roles that it does not play are
    drawn from others of its side."""
    mixed = plan.lineup in ("mixed", "both") or (plan.lineup == "auto" and spec.n_agents > 2)
    tasks: list[Task] = []
    for split in plan.splits:
        members = [m for m in pool.members(split) if _may_sit(m, spec, role)]
        if not members:
            beside = f" that may sit beside a {role}" if role else ""
            raise OmgError(
                f"{pool.path} has no {split} members{beside} ({SIDES[split]} ones). Assign some "
                "with 'omg pool split', or choose another --split."
            )
        if plan.lineup != "mixed":
            tasks += [
                Task(member.id, completed([member], pool, spec), "homologue", split)
                for member in members
            ]
        if mixed:
            tasks.append(Task(MIXED, completed(members, pool, spec), "mixed", split))
    return tasks


def _baseline(named: str, agents: Sequence[AgentRun]) -> str:
    methods = list(dict.fromkeys(agent.method for agent in agents))
    if named and named not in methods:
        raise OmgError(
            f"baseline={named} is none of the methods{nearest(named, methods) or '.'} They are: "
            f"{', '.join(methods)}."
        )
    return named or methods[0]


def _check_unseen(agents: Sequence[AgentRun], tasks: Sequence[Task], pool: OpponentPool) -> None:
    """Held out means never met, and so does validation: a pool that was split again after training
    is refused."""
    players = [m for task in tasks if task.split != "train" for m in task.members]
    unmet = {m.id: m.split for m in players if m.split != "train"}  # others only complete a game
    for agent in agents:
        met = sorted(agent.met.intersection(unmet))
        if met:
            kept = "holds out" if unmet[met[0]] == "heldout" else "keeps for validation"
            raise OmgError(
                f"{agent.folder} was trained with {met[0]}, which {pool.path} {kept} now. "
                "Restore the split it was trained with, or give --split=train."
            )


def run_crossplay(
    runs: Sequence[Path],
    pool: str | Path,
    plan: CrossplayPlan,
    *,
    baseline: str = "",
    metric: str = "",
    jobs: int = 1,
    on_cell: Callable[[Cell, int], None] = lambda cell, total: None,
) -> Crossplay:
    """Play every cell; `on_cell` is told each one and how many there are. A cell's numbers depend
    on the plan, its agent and its opponent only: not on who else is evaluated in the same call, nor
    on how many agents play at a time (`jobs`, each in a process of its own; 0: one per core).
    Without a baseline the first method is compared to. A `metric` that nobody measures is refused
    before anything is played."""
    agents = read_agents(runs, plan.which)
    first, *_ = everyone = list(agents.values())
    opened = open_pool(pool, first)
    compared = _baseline(baseline, everyone)
    check_pool(first, opened)
    probe = make_batched(first.config.env, first.config.env_args, n_copies=1)
    spec = probe.spec
    probe.close()
    roles = {role_of(agent, opened, spec): agent for agent in everyone}
    if len(roles) > 1:
        (role, agent), (other, another) = list(roles.items())[:2]
        raise OmgError(
            f"{agent.folder} is a {role}, {another.folder} a {other}. Compare agents of one role."
        )
    tasks = tasks_of(opened, plan, spec, *roles)
    _check_unseen(everyone, tasks, opened)
    trial = None
    if metric and metric not in known_metrics(spec):
        trial = min(tasks, key=lambda task: task.split == "heldout")
        if trial.split != "heldout":  # a metric that nobody measures is refused without a look
            _check_measured(metric, agents, opened, [trial], plan)
            trial = None
    record_look(
        opened,
        _held_out(tasks),
        kind="evaluation",
        runs={str(agent.folder): weights_hash(agent.model) for agent in everyone},
        episodes=plan.episodes,
        options={name: getattr(plan, name) for name in LOOKED}
        | {"greedy": acting_of(plan, everyone)},
    )
    cells: list[Cell] = []
    games = [Games(agent_id, agent, tasks, play_agent) for agent_id, agent in agents.items()]
    with recorded():
        if trial is not None:
            _check_measured(metric, agents, opened, [trial], plan)
        for cell in play_all(games, opened, plan, jobs=jobs):
            cells.append(cell)
            on_cell(cell, len(tasks) * len(agents))
    config = first.config
    opponents = [m for split in plan.splits for m in opened.members(split)]
    game = config.as_dict()["env_args"]
    return Crossplay(
        format=FORMAT,
        env=config.env,
        env_args=game,
        episodes=plan.episodes,
        finetune_episodes=plan.finetune_episodes,
        seed=plan.seed,
        greedy=plan.greedy,
        agents=tuple(_described(agent_id, agent, plan) for agent_id, agent in agents.items()),
        opponents=tuple(
            Opponent(m.id, m.run, m.algorithm, m.seed, m.skill, m.split, m.env_steps)
            for m in opponents
        ),
        cells=tuple(cells),
        baseline=compared,
        strangers=tuple(m.id for m in opponents if m.env_args and dict(m.env_args) != game),
    )


# What of a plan decides the numbers against held-out opponents.
LOOKED = ("lineup", "finetune_episodes", "seed", "which", "permute")


def acting_of(plan: CrossplayPlan, agents: Sequence[AgentRun]) -> bool | None:
    """How all agents acted; None: some greedily, some not."""
    found = {plan.acts_greedily(agent.config) for agent in agents}
    return found.pop() if len(found) == 1 else None


def _held_out(tasks: Sequence[Task]) -> list[PoolMember]:
    """The players of the held-out side's cells."""
    return [member for task in tasks for member in task.members if task.split == "heldout"]


def _check_measured(
    metric: str,
    agents: Mapping[str, AgentRun],
    pool: OpponentPool,
    tasks: Sequence[Task],
    plan: CrossplayPlan,
) -> None:
    """Only models know what else they tell: one agent of each kind plays two episodes."""
    short = replace(plan, episodes=2, finetune_episodes=0)
    kinds = {agent.config.am_model: (name, agent) for name, agent in agents.items()}
    measured = dict.fromkeys(
        found
        for name, agent in kinds.values()
        for cell in play_agent(name, agent, pool, tasks, short)
        for found in cell.metrics
    )
    if metric not in measured:
        raise OmgError(
            f"There is no metric '{metric}'{nearest(metric, measured) or '.'} Choose from: "
            f"{', '.join(measured)}."
        )


def _described(agent_id: str, agent: AgentRun, plan: CrossplayPlan) -> Agent:
    config = agent.config
    return Agent(
        id=agent_id,
        method=agent.method,
        seed=config.seed,
        run=str(agent.folder),
        config=config.name,
        am_model=config.am_model,
        env_steps=_trained(agent),
        model=agent.model.name,
        gamma=config.gamma,
        prior_steps=prior_steps(agent),
        greedy=plan.acts_greedily(config),
    )


def _trained(agent: AgentRun) -> int | None:
    """The steps that an agent was trained for. The best test is one of all: they count whole."""
    if agent.model.name != "best":
        return agent.env_steps
    last = read_meta(agent.model.with_name("last"))
    return int(last["env_steps"]) if last else agent.env_steps


def prior_steps(agent: AgentRun) -> int | None:
    """How long the prior was trained that an agent began with; 0 without one, None where it is no
    longer there."""
    config = with_places(agent)
    if not config.init_param_path or config.multi_algs:
        return 0
    models = user_path(config.init_param_path) / "models"
    saved = [models / "last", *(models / str(step) for step in reversed(saved_steps(models)))]
    found = [int(meta["env_steps"]) for folder in saved if (meta := read_meta(folder))]
    return found[0] if found else None


def play_agent(
    agent_id: str,
    agent: AgentRun,
    pool: OpponentPool,
    tasks: Sequence[Task],
    plan: CrossplayPlan,
    *,
    device: torch.device = CPU,
) -> Iterator[Cell]:
    """One agent's cells. Each is a rollout of its own, with all its episodes side by side: that is
    what keeps cells independent of each other."""
    with SeatedAgent(
        agent, pool, tasks[0].members, episodes=plan.episodes, seed=plan.seed, device=device
    ) as seated:
        greedy = plan.acts_greedily(agent.config)
        finetuner = Finetuner(seated) if plan.finetune_episodes else None
        for task in tasks:
            lineup = seated.lineup(task.members, task.lineup)
            if finetuner is not None:
                finetuner.train(
                    lineup, episodes=plan.finetune_episodes, stream=f"{task.stream}.finetune"
                )
            rollout = seated.rollout(lineup, stream=task.stream, greedy=greedy)
            result = run_test(rollout, plan.episodes, round_number=0, env_steps=agent.env_steps)
            metrics = cell_metrics(result)
            if plan.permute and seated.mac.policy.feature_dim and len(result.lengths) > 1:
                rollout = seated.rollout(lineup, stream=task.stream, greedy=greedy, permute=True)
                other = run_test(rollout, plan.episodes, round_number=0, env_steps=agent.env_steps)
                metrics |= permuted_metrics(cell_metrics(other))
            yield Cell(
                agent=agent_id,
                opponent=task.opponent,
                lineup=task.lineup,
                split=task.split,
                episodes=len(result.lengths),
                metrics=metrics,
            )
