"""`python -m benchmarks.predator_prey_results`: QMIX on Spread, IQL predators against a script.

Runs `omg train` for each seed (as many at a time as there are cores), skips what is done, resumes
what was broken. Plays random, motionless and hand-written players beside them, to show how much
there is to learn. Writes results/predator_prey_teams/{teams,teams-curves}.csv, and the
curves as PNG. `--study=<folder>` draws those of the pipeline's agents, into that folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.jobs import SEEDS, Job, interval
from omg.config.loader import read_yaml
from omg.envs.predator_prey import PredatorPreyArgs
from omg.envs.registry import make_batched
from omg.evaluation.curves import COLOURS, band, read_curve
from omg.evaluation.metric_bounds import clipped
from omg.opponents.scripted_predator_prey import MEMORY_DIM, act_together, make_script
from omg.types import IntArray, Observation, TimeStep

Seen = Observation | TimeStep
Actions = Callable[[Seen, np.random.Generator], IntArray]
EPISODES = 1000  # of every player that does not learn
PREY = "flee"
COMMON = ("--use_sacred=False", "--use_tensorboard=False", "--quiet", "--test_nepisode=256")


@dataclass(frozen=True)
class Part:
    """One thing to learn: how, and what to look at."""

    name: str
    title: str
    env: str
    words: tuple[str, ...]
    metrics: tuple[str, ...]  # of tests; the first is drawn
    axis: str
    shown: tuple[str, ...]  # players that do not learn, drawn beside the curve


SPREAD = Part(
    name="qmix-spread",
    title="QMIX on Spread",
    env="spread",
    words=(
        *("--config=qmix", "--env-config=spread", "--policy_model=mlp", "--gamma=0.9"),
        *("--mlp_hidden_dims=128,128", "--lr=0.0005", "--target_update_tau=0.01"),
        *("--epsilon_anneal_time=50000", "--batch_size_run=32", "--t_max=160000"),
        "--test_interval=20000",
    ),
    metrics=("return", "covered", "collisions"),
    axis="return (sum over agents)",
    shown=("assigned", "no action"),
)
PREDATORS = Part(
    name="iql-predators",
    title=f"IQL predators against the script '{PREY}'",
    env="predator_prey",
    words=(
        *("--config=iql", "--env-config=predator_prey", "--learning_role=predator"),
        *("--policy_model=mlp", "--common_reward=True", "--lr=0.001"),
        *("--epsilon_anneal_time=50000", "--t_max=200000", "--test_interval=20000"),
    ),
    metrics=("collisions", "survival"),
    axis="contacts per episode",
    shown=("intercept", "chase", "random"),
)
PARTS = (SPREAD, PREDATORS)


def jobs_of(root: Path) -> list[Job]:
    """Every part with every seed."""
    pool = root / "prey"
    if not (pool / "pool.json").is_file():
        words = ("pool", "add", str(pool), f"--script={PREY}", "--env=predator_prey")
        subprocess.check_call([sys.executable, "-m", "omg", *words])
    extra = {SPREAD.name: (), PREDATORS.name: (f"--opponent_pool={pool}",)}
    return [
        Job(
            root / f"{part.name}-s{seed}",
            (
                *part.words,
                *COMMON,
                *extra[part.name],
                *(f"--seed={seed}", f"--local_results_path={root}"),
                f"--run_name={part.name}-s{seed}",
            ),
        )
        for seed in SEEDS
        for part in PARTS
    ]


# --- players that do not learn ------------------------------------------------------------------


def _random(seen: Seen, rng: np.random.Generator) -> IntArray:
    chosen: IntArray = rng.integers(0, 5, seen.obs.shape[:2])
    return chosen


def _still(seen: Seen, rng: np.random.Generator) -> IntArray:
    return np.zeros(seen.obs.shape[:2], np.int64)


def _assigned(seen: Seen, rng: np.random.Generator) -> IntArray:
    """Spread: landmarks are shared out by the least total distance, and each agent takes the push
    after which it would come to rest nearest to its own."""
    agents, landmarks = seen.obs.shape[1], seen.state[:, 4 * seen.obs.shape[1] :]
    bodies = seen.state[:, : 4 * agents].reshape(-1, agents, 4)
    places, goals = bodies[..., :2], landmarks.reshape(-1, agents, 2)
    orders = np.array(list(permutations(range(agents))))
    gaps = np.linalg.norm(places[:, :, None] - goals[:, None], axis=-1)  # [B, agent, landmark]
    lengths = gaps[:, np.arange(agents), orders].sum(-1)  # [B, order]
    goal = np.take_along_axis(goals, orders[lengths.argmin(1)][..., None], axis=1)
    pushes = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
    # Speed falls by a quarter per step of 0.1 s, so v carries 0.4 v further; a push gives 0.5.
    rest = (places + 0.4 * bodies[..., 2:])[:, :, None] + 0.2 * pushes
    nearest: IntArray = np.linalg.norm(rest - goal[:, :, None], axis=-1).argmin(-1)
    return nearest


def _scripts(names: Sequence[str], board: PredatorPreyArgs) -> Actions:
    """Predator-Prey: one script per seat."""
    scripts = [make_script(name) for name in names]
    memories = [np.zeros((EPISODES, MEMORY_DIM), np.int64) for _ in scripts]

    def act(seen: Seen, rng: np.random.Generator) -> IntArray:
        chosen = []
        for seat, script in enumerate(scripts):
            seats = np.full(EPISODES, seat)
            actions, memories[seat] = act_together(
                [script],
                np.zeros_like(seats),
                seen.state,
                seats,
                seen.avail[:, seat],
                memories[seat],
                rng,
                board,
            )
            chosen.append(actions)
        return np.stack(chosen, axis=1)

    return act


def play(env_name: str, act: Actions) -> dict[str, float]:
    """One episode of every copy: mean return (summed over agents) and statistics."""
    env = make_batched(env_name, {}, n_copies=EPISODES)
    seen: Seen = env.reset(0)
    rng = np.random.default_rng(0)
    total = np.zeros(EPISODES)
    for _ in range(env.spec.episode_limit):
        seen = step = env.step(act(seen, rng))
        total += step.reward.sum(-1)
    return {
        "return": float(total.mean()),
        **{name: float(values.mean()) for name, values in step.info.items()},
    }


def references() -> dict[str, dict[str, dict[str, float]]]:
    """By part and player."""
    board = PredatorPreyArgs(n_predators=3, n_prey=1, n_obstacles=2)
    spread = {"random": _random, "no action": _still, "assigned": _assigned}
    hunters = ("random", "chase", "ambush", "intercept")
    return {
        SPREAD.name: {name: play("spread", act) for name, act in spread.items()},
        PREDATORS.name: {
            name: play("predator_prey", _scripts([name] * 3 + [PREY], board)) for name in hunters
        },
    }


# --- tables and pictures ------------------------------------------------------------------------


def runs_of(root: Path, part: Part) -> list[Path]:
    """The finished runs."""
    runs = [root / f"{part.name}-s{seed}" for seed in SEEDS]
    return [run for run in runs if (run / "done").is_file()]


def summary(root: Path) -> list[dict[str, Any]]:
    """One row per part, player and metric."""
    fixed = references()
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        for name, found in fixed[part.name].items():
            rows += [
                {"part": part.name, "player": name, "metric": metric, "mean": round(value, 4)}
                for metric, value in found.items()
                if metric in part.metrics
            ]
        runs = runs_of(root, part)
        for metric in part.metrics if runs else ():
            curves = [read_curve(run, f"test_{metric}_mean") for run in runs]
            for player, at in (("untrained", 0), ("trained", -1)):
                values = [float(curve.values[at]) for curve in curves]
                rows.append(
                    {
                        "part": part.name,
                        "player": player,
                        "metric": metric,
                        "mean": round(mean(values), 4),
                        "half_interval": round(interval(values), 4),
                        "steps": int(curves[0].steps[at]),
                        "values": " ".join(f"{value:.3f}" for value in values),
                    }
                )
    return rows


def write_csv(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


Line = tuple[NDArray[np.float64], ...]


def draw(
    lines: Mapping[str, Line],
    out: Path,
    *,
    title: str,
    axis: str,
    metric: str = "",
    levels: Mapping[str, float] | None = None,
) -> None:
    """Means with their intervals, cut to what `metric` can be; `levels` are players that do not
    learn. The view leaves out what is far below all of them: some untrained networks steer off the
    field."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, (steps, middle, half)) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(steps / 1000, middle, color=colour, linewidth=2, label=name)
        low, high = (clipped(metric, edge) for edge in (middle - half, middle + half))
        axes.fill_between(steps / 1000, low, high, color=colour, alpha=0.1)
    for style, (name, value) in zip(("--", "-.", ":"), (levels or {}).items(), strict=False):
        axes.axhline(value, color="#555555", linestyle=style, linewidth=1.2, label=name)
    if levels and min(levels.values()) < 0:
        axes.set_ylim(min(levels.values()) - 10, max(levels.values()) + 6)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("environment steps (thousands)")
    axes.set_ylabel(axis)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(out)


def curves(root: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A picture per part, and the points of its first metric."""
    points: list[dict[str, Any]] = []
    for part in PARTS:
        runs = runs_of(root, part)
        if not runs:
            continue
        metric = part.metrics[0]
        line = band([read_curve(run, f"test_{metric}_mean") for run in runs])
        found = {
            r["player"]: r["mean"] for r in rows if (r["part"], r["metric"]) == (part.name, metric)
        }
        draw(
            {f"learned, {len(runs)} seeds": line},
            root / f"{part.name}.png",
            title=part.title,
            axis=part.axis,
            levels={f"'{name}', not learned": found[name] for name in part.shown},
        )
        points += points_of(part.name, metric, line)
    return points


def points_of(name: str, metric: str, line: Line) -> list[dict[str, Any]]:
    """A curve as rows."""
    return [
        {"name": name, "metric": metric, "step": int(step), "mean": f"{m:.4f}", "half": f"{h:.4f}"}
        for step, m, h in zip(*line, strict=True)
    ]


def draw_study(study: Path) -> None:
    """A pipeline's agents: curves of own return by method, and their points. Of the training
    episodes (actions are sampled): a point is the mean of some 2,000, a test's of 256."""
    methods: dict[str, list[Path]] = {}
    steps = json.loads((study / "pipeline.json").read_text(encoding="utf-8"))["steps"]
    for key, step in steps.items():
        if key.startswith("agents/") and step["status"] == "done":
            label = read_yaml(study / key / "config.yaml", key)["label"]
            methods.setdefault(str(label), []).append(study / key)
    lines = {
        f"{name} ({len(runs)} seeds)": band([read_curve(run, "own_return_mean") for run in runs])
        for name, runs in methods.items()
    }
    title = "One predator learns, the others come from the pool"
    draw(lines, study / "agents.png", title=title, axis="own return in training")
    rows = [row for name, line in lines.items() for row in points_of(name, "own_return", line)]
    write_csv(rows, study / "agents.csv")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.predator_prey_results", description=__doc__
    )
    parser.add_argument("--results", type=Path, default=Path("results/predator_prey_teams"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--table", action="store_true", help="only tables and curves of what is done"
    )
    parser.add_argument("--study", type=Path, help="a pipeline's folder: draw its agents, no more")
    given = parser.parse_args()
    if given.study is not None:
        draw_study(given.study)
        return
    given.results.mkdir(parents=True, exist_ok=True)
    if not given.table:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(Job.run, jobs_of(given.results)))
    rows = summary(given.results)
    write_csv(rows, given.results / "teams.csv")
    write_csv(curves(given.results, rows), given.results / "teams-curves.csv")
    for row in rows:
        half = f" ± {row['half_interval']:.2f} ({row['values']})" if "values" in row else ""
        print(f"{row['part']:14} {row['player']:10} {row['metric']:11} {row['mean']:8.2f}{half}")


if __name__ == "__main__":
    main()
