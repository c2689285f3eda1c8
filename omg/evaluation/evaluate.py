"""`evaluate` and `crossplay`: agents against opponents, played and written down in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omg.evaluation.agent_runs import AgentRun, read_agent_run
from omg.evaluation.crossplay import (
    CrossplayPlan,
    LineupChoice,
    open_pool,
    read_agents,
    run_crossplay,
)
from omg.evaluation.crossplay_files import (
    check_metric,
    draw_heat_map,
    prepare_folder,
    write_tables,
)
from omg.evaluation.crossplay_table import RENAMED, Cell, Crossplay
from omg.evaluation.gap import FILE, read_headroom
from omg.evaluation.headroom import NORMALISED, normalised, references_remark
from omg.evaluation.own_game import (
    OwnGame,
    needs_pool,
    play_own_game,
    refuse_pool_options,
    told_greedy,
)
from omg.evaluation.subgoal_replay import ENVS, clear_replays, write_subgoal_replays
from omg.experiment.saved import SavedRun
from omg.opponents.pool import OpponentPool, Split
from omg.opponents.unseen import recorded
from omg.types import OmgError

SIDES: dict[str, tuple[Split, ...]] = {
    "train": ("train",),
    "validation": ("validation",),
    "heldout": ("heldout",),
    "both": ("train", "heldout"),
    "all": ("train", "validation", "heldout"),
    "seen": ("train",),
    "unseen": ("heldout",),
}


HOW = ("sample", "greedy")  # how agents act; neither: as they play
NORMALISED_RETURNS = ("own_return", "discounted_return")


def evaluate(
    run: SavedRun | str | Path,
    pool: OpponentPool | str | Path = "",
    *,
    split: str = "",
    episodes: int = 200,
    **more: Any,
) -> Crossplay | OwnGame:
    """Test a run; everything that is not given comes from the run. One agent plays every opponent
    of a pool (that of its training): of its validation side where it has one, else the unseen ones
    where there are any; `more` as for `crossplay`.
    A team, or an agent that was trained without a pool, plays its own game."""
    folder = run.folder if isinstance(run, SavedRun) else Path(run)
    which = str(more.get("which", "last"))
    if not pool and not needs_pool(folder, which):
        own = ("which", "seed", *HOW, "out", "on_cell", "metric")
        usual = {"lineup": "auto", "finetune_episodes": 0, "permute": False, "replays": 0}
        asked: dict[str, tuple[Any, Any]] = {"split": (split, "")}
        asked |= {k: (v, usual.get(k)) for k, v in more.items() if k not in own}
        refuse_pool_options(asked, folder)
        kept = {key: value for key, value in more.items() if key in ("which", "seed", *HOW)}
        return play_own_game(folder, episodes=episodes, out=more.get("out"), **kept)
    if not split:
        opened = open_pool(_path(pool), read_agent_run(folder, which))
        order: tuple[Split, ...] = ("validation", "heldout", "train")
        split = next((side for side in order if opened.members(side)), "train")
    return crossplay([run], pool, split=split, episodes=episodes, **more)


def crossplay(
    runs: Sequence[SavedRun | str | Path],
    pool: OpponentPool | str | Path = "",
    *,
    split: str = "both",
    episodes: int = 100,
    lineup: LineupChoice = "auto",
    which: str = "last",
    finetune_episodes: int = 0,
    seed: int = 0,
    permute: bool = False,
    sample: bool = False,
    greedy: bool = False,
    baseline: str = "",
    metric: str = "own_return",
    out: str | Path | None = None,
    replays: int = 0,
    headroom: str | Path = "",
    jobs: int = 1,
    on_cell: Callable[[Cell, int], None] = lambda cell, total: None,
) -> Crossplay:
    """Play agents against all opponents of a pool (none named: that of the first run), `episodes`
    per cell, and compare their methods.

    `split`: opponents seen in training (seen or train), those to tune by (validation), unseen ones
    (unseen or heldout), both (seen and unseen) or all.
    `lineup`: homologue, mixed, both or auto. `which`: last, best or a saved step.
    `finetune_episodes`: train on against each opponent first. `permute`: play again with what was
    inferred in other episodes. An agent acts as it is tested in training (`test_greedy`: Q-learners
    by their best action, policies by their odds), unless `greedy` or `sample` (as in training) is
    asked for. With `out` tables, a heat map of `metric` and `replays` episodes are written there.
    `headroom`: a headroom.json; without it, the one beside the pool or in `out`: returns are also
    given normalised. `jobs`: so many agents play at a time, each in a process of its own (0: one
    per core). `on_cell` is told every cell and how many there are."""
    if split not in SIDES:
        raise OmgError(f"split={split} is not known. Choose {', '.join(SIDES)}.")
    if replays < 0:
        raise OmgError(f"replays={replays} is not possible. Use 0 or more.")
    metric = RENAMED.get(metric, metric)
    plan = CrossplayPlan(
        splits=SIDES[split],
        lineup=lineup,
        episodes=episodes,
        finetune_episodes=finetune_episodes,
        seed=seed,
        which=which,
        permute=permute,
        greedy=told_greedy(sample=sample, greedy=greedy),
    )
    folders = [run.folder if isinstance(run, SavedRun) else Path(run) for run in runs]
    named = _path(pool)
    agents = read_agents(folders, which)  # what is no agent is refused before a folder is made
    first = next(iter(agents.values()))
    folder = None if out is None else prepare_folder(Path(out))
    played = metric.removeprefix(NORMALISED)  # what is normalised has to be played
    table = run_crossplay(
        folders, named, plan, baseline=baseline, metric=played, jobs=jobs, on_cell=on_cell
    )
    table = replace(table, metric=metric if metric in table.metrics() else "")
    beside = [folder, open_pool(named, first).path.parent]
    table = _normalised(table, headroom, beside, which)
    if folder is None:
        return table
    table = replace(table, replays=replays if table.env in ENVS else 0)
    written = write_tables(table, folder)
    check_metric(table, metric)  # refused when the numbers are safe
    written.append(draw_heat_map(table, folder / "crossplay.png", metric=metric))
    written += _replays(table, agents, named, folder / "replays", replays)
    return replace(table, files=tuple(written))


def _normalised(
    table: Crossplay, given: str | Path, places: Sequence[Path | None], which: str
) -> Crossplay:
    """With returns between random play and the best response, where these were measured."""
    beside = [place / FILE for place in places if place is not None]
    path = Path(given) if given else next((p for p in beside if p.is_file()), None)
    if path is None:
        return table
    found = read_headroom(path)
    if (found.env, dict(found.env_args)) != (table.env, dict(table.env_args)):
        if not given:
            return table
        raise OmgError(f"{path} was measured in another game. Give that of {table.env}.")
    metrics = dict.fromkeys([table.metric or "own_return", *NORMALISED_RETURNS])
    cells = normalised(table.cells, found, list(metrics))
    acted = [table.acted_greedily(agent) for agent in table.agents]
    said = references_remark(found, acted, which)
    return replace(table, cells=cells, remarks=(*table.remarks, *([said] if said else [])))


def _path(pool: OpponentPool | str | Path) -> str | Path:
    return pool.path if isinstance(pool, OpponentPool) else pool


def _replays(
    table: Crossplay,
    agents: Mapping[str, AgentRun],
    pool: str | Path,
    folder: Path,
    count: int,
) -> list[Path]:
    """Replays of each method's first agent, against opponents of a side that was played: held-out
    ones, if they were. The cross-play has recorded its look at them."""
    if not count or table.env not in ENVS:
        return []
    clear_replays(folder)
    opened = open_pool(pool, next(iter(agents.values())))
    played = [opened.members(split) for split in ("heldout", "validation", "train")]
    sides = {cell.split for cell in table.cells}
    members = next(m for m in played if m and m[0].split in sides)
    with recorded():
        return [
            path
            for agent_id, *_ in table.methods().values()
            for path in write_subgoal_replays(
                agent_id, agents[agent_id], opened, members, folder, count=count, seed=table.seed
            )
        ]
