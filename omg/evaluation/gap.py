"""Measures headroom from finished runs: plays the agents, the best responses and random play, and
writes headroom.json and headroom.csv."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omg.components.action_selectors import DecayThenFlat, EpsilonGreedy
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import AgentRun, SeatedAgent, check_pool, role_of
from omg.evaluation.crossplay import (
    CPU,
    CrossplayPlan,
    Task,
    acting_of,
    open_pool,
    play_agent,
    read_agents,
    tasks_of,
)
from omg.evaluation.crossplay_files import csv_text, prepare_folder
from omg.evaluation.crossplay_jobs import Games, play_all
from omg.evaluation.crossplay_table import RENAMED, Cell, cell_metrics
from omg.evaluation.headroom import FORMAT, RANDOM, ROLES, Agents, Headroom
from omg.evaluation.own_game import told_greedy
from omg.opponents.pool import OpponentPool, Split
from omg.opponents.sides import named_member
from omg.opponents.unseen import record_look, recorded
from omg.registry import nearest
from omg.runners.rollout import run_test
from omg.storage.files import read_checked, write_text
from omg.storage.models import weights_hash
from omg.types import OmgError

FILE = "headroom.json"
SPLITS: tuple[Split, ...] = ("train", "validation", "heldout")


@dataclass(frozen=True, slots=True)
class _Found:
    """Runs by what they are for."""

    roles: Mapping[str, dict[str, AgentRun]]
    responses: Mapping[str, dict[str, AgentRun]]  # by opponent


def measure_headroom(
    runs: Sequence[Path],
    pool: str | Path,
    *,
    names: Mapping[str, str],
    metric: str = "own_return",
    episodes: int = 100,
    seed: int = 0,
    sample: bool = False,
    greedy: bool = False,
    which: str = "last",
    out: Path | None = None,
    jobs: int = 1,
    on_cell: Callable[[Cell, int], None] = lambda cell, total: None,
) -> Headroom:
    """Play runs of a plain agent, of a control and an oracle (`names`: what each is called), and of
    best responses (trained with one member each, `opponent_members`) with the pool's opponents,
    `jobs` agents at a time (0: one per core). They act as each is tested in training, unless
    `sample` or `greedy` says how. `which`: last, best or a saved step."""
    metric = RENAMED.get(metric, metric)
    agents = read_agents(runs, which)
    first = next(iter(agents.values()))
    opened = open_pool(pool, first)
    check_pool(first, opened)
    found = _sorted(agents, opened, names)
    folder = None if out is None else prepare_folder(out)
    plan = CrossplayPlan(
        splits=tuple(s for s in SPLITS if opened.members(s)),
        lineup="homologue",
        episodes=episodes,
        seed=seed,
        greedy=told_greedy(sample=sample, greedy=greedy),
    )
    probe = make_batched(first.config.env, first.config.env_args, n_copies=1)
    spec = probe.spec
    probe.close()
    tasks = tasks_of(opened, plan, spec, role_of(first, opened, spec))
    record_look(
        opened,
        [member for task in tasks for member in task.members],
        kind="headroom",
        runs={str(agent.folder): weights_hash(agent.model) for agent in agents.values()},
        episodes=episodes,
        options={"seed": seed, "greedy": acting_of(plan, list(agents.values()))},
    )
    cells: list[Cell] = []
    games = _games(found, tasks)
    total = sum(len(each.tasks) for each in games)
    with recorded():
        for cell in play_all(games, opened, plan, jobs=jobs):
            cells.append(cell)
            on_cell(cell, total)
    result = Headroom(
        format=FORMAT,
        env=first.config.env,
        env_args=first.config.as_dict()["env_args"],
        metric=metric,
        episodes=episodes,
        seed=seed,
        greedy=plan.greedy,
        which=which,
        names={role: name for role, name in names.items() if name},
        agents=Agents(
            plain=tuple(found.roles["plain"]),
            control=tuple(found.roles["control"]),
            oracle=tuple(found.roles["oracle"]),
            responses={opponent: tuple(each) for opponent, each in found.responses.items()},
        ),
        acted={name: plan.acts_greedily(agent.config) for name, agent in agents.items()},
        cells=tuple(cells),
    )
    if metric not in result.metrics():
        raise OmgError(
            f"There is no metric '{metric}'. Choose from: {', '.join(result.metrics())}."
        )
    if folder is not None:
        write_headroom(result, folder)
    return result


def _sorted(agents: Mapping[str, AgentRun], pool: OpponentPool, names: Mapping[str, str]) -> _Found:
    """Which run is for what; one that is for nothing is refused."""
    roles: dict[str, dict[str, AgentRun]] = {role: {} for role in ROLES}
    responses: dict[str, dict[str, AgentRun]] = {}
    known = {name: role for role, name in names.items() if name}
    for agent_id, agent in agents.items():
        members = agent.config.opponent_members
        if len(members) == 1:
            opponent = named_member(pool, members[0]).id
            responses.setdefault(opponent, {})[agent_id] = agent
        elif agent.method in known:
            roles[known[agent.method]][agent_id] = agent
        else:
            raise OmgError(
                f"{agent.folder} is called '{agent.method}', which is neither plain, control nor "
                f"oracle{nearest(agent.method, known) or '.'} Name it (--plain, --control, "
                "--oracle), or leave it out."
            )
    if not roles["plain"]:
        raise OmgError(
            f"There is no run of the plain agent '{names.get('plain', '')}' to compare with. Give "
            "its folders, and its name as --plain."
        )
    return _Found(roles, responses)


def _games(found: _Found, tasks: Sequence[Task]) -> list[Games]:
    """Who plays which cells: a best response plays its own opponent only."""
    plain = next(iter(found.roles["plain"].values()))
    games = [Games(RANDOM, plain, tasks, _play_random)]
    for role in found.roles.values():
        games += [Games(i, agent, tasks, play_agent) for i, agent in role.items()]
    for opponent, each in found.responses.items():
        own = [task for task in tasks if task.opponent == opponent]
        games += [Games(i, agent, own, play_agent) for i, agent in each.items() if own]
    return games


def _play_random(
    agent_id: str,
    agent: AgentRun,
    pool: OpponentPool,
    tasks: Sequence[Task],
    plan: CrossplayPlan,
) -> list[Cell]:
    """The same episodes with a uniformly random action of those available, in the agent's seat."""
    cells = []
    with SeatedAgent(
        agent, pool, tasks[0].members, episodes=plan.episodes, seed=plan.seed, device=CPU
    ) as seated:
        always = DecayThenFlat(start=1.0, finish=1.0, time_length=1)
        seated.mac.policy.selector = EpsilonGreedy(epsilon=always)
        for task in tasks:
            lineup = seated.lineup(task.members, task.lineup)
            rollout = seated.rollout(lineup, stream=task.stream, greedy=False, record=False)
            played = run_test(rollout, plan.episodes, round_number=0, env_steps=0)
            place = (agent_id, task.opponent, task.lineup, task.split, len(played.lengths))
            cells.append(Cell(*place, cell_metrics(played)))
    return cells


# --- files -----------------------------------------------------------------------------------


def write_headroom(found: Headroom, out: Path) -> list[Path]:
    """headroom.json and, one row per opponent and metric, headroom.csv."""
    text = json.dumps(found.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    rows = [row for metric in found.metrics() for row in found.rows(metric)]
    sides = [row for metric in found.metrics() for row in found.sides(metric)]
    texts = {FILE: text, "headroom.csv": csv_text(rows), "headroom_sides.csv": csv_text(sides)}
    for name, content in texts.items():
        write_text(out / name, content)
    return [out / name for name in texts]


def read_headroom(path: Path) -> Headroom:
    """What a file holds."""
    return read_checked(Headroom, path, "Measure it again with omg gap.")
