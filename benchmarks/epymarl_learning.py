"""`python -m benchmarks.epymarl_learning`: EPyMARL's own IQL learns Spread, with the settings of
benchmark_mpe, but one game at a time.

    python -m benchmarks.epymarl_learning --epymarl ../epymarl --epymarl-python ../venv/bin/python
        [--particles ../multiagent-particle-envs] [--steps 500000] [--seeds 1,2,3]
        --out docs/results/benchmark-mpe/epymarl.csv
    python -m benchmarks.epymarl_learning --ours results/benchmark_mpe/teams/spread/iql-s*
        --out docs/results/benchmark-mpe/epymarl.csv

Two games: mpe2's Spread, which ours equals step by step, and with `--particles` (a checkout) that
of the older particle world, which EPyMARL's paper has. So one sees apart whether a difference to
the paper comes from the learner or from the game. Checkouts are not part of this project; the
Python needs what EPyMARL needs, and mpe2. Returns are in our unit: those of the older world are
(return + 75) / 2, because there distances and collisions count twice as much, and each of three
agents collides with itself in all 25 steps. `--ours` adds tests of our own runs. Rows of the file
with the same method, game and seed are replaced.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results_collect import tests_of
from benchmarks.results_tables import Rows, read

Tests = list[tuple[int, float]]  # environment steps and returns
GAMES = ("mpe2", "particles")
COLUMNS = ("method", "game", "seed", "env_steps", "return")
THEIRS = "EPyMARL's IQL"

# Runs in EPyMARL's Python: its main.py, with the two games as Gymnasium environments.
PLAYER = """
import runpy, sys, types
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
game, particles, main, *words = sys.argv[1:]
class Game(gymnasium.Env):
    n_agents = 3
    action_space = Tuple([Discrete(5)] * 3)
    observation_space = Tuple([Box(-np.inf, np.inf, (18,), np.float32)] * 3)
class MPE2(Game):
    def __init__(self):
        from mpe2 import simple_spread_v3
        self.game = simple_spread_v3.parallel_env(max_cycles=1000)
    def reset(self, seed=None, options=None):
        return tuple(self.game.reset(seed=seed)[0].values()), {}
    def step(self, actions):
        told = dict(zip(self.game.agents, map(int, actions)))
        seen, rewards, *_ = self.game.step(told)
        return tuple(seen.values()), list(map(float, rewards.values())), False, False, {}
class Particles(Game):
    moves = 5.0 * np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
    def __init__(self):
        package = types.ModuleType("multiagent")
        package.__path__ = [particles + "/multiagent"]
        sys.modules["multiagent"] = package
        from multiagent.scenarios.simple_spread import Scenario
        self.rules = Scenario()
        self.world = self.rules.make_world()
    def seen(self):
        told = (self.rules.observation(agent, self.world) for agent in self.world.agents)
        return tuple(each.astype(np.float32) for each in told)
    def reset(self, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)
        self.rules.reset_world(self.world)
        return self.seen(), {}
    def step(self, actions):
        for agent, action in zip(self.world.agents, actions):
            agent.action.u, agent.action.c = self.moves[int(action)], np.zeros(2)
        self.world.step()
        rewards = [float(self.rules.reward(agent, self.world)) for agent in self.world.agents]
        return self.seen(), rewards, False, False, {}
gymnasium.register("spread", entry_point=MPE2 if game == "mpe2" else Particles)
sys.modules["smaclite"] = types.ModuleType("smaclite")
sys.argv = [main, *words]
sys.path.insert(0, main.rpartition("/")[0])
runpy.run_path(main, run_name="__main__")
"""
# What benchmark_mpe gives IQL.
IQL = (
    *(
        "--config=iql",
        "--env-config=gymma",
        "with",
        "env_args.key=spread",
        "env_args.time_limit=25",
    ),
    *("lr=0.0005", "use_rnn=False", "hidden_dim=128", "target_update_interval_or_tau=0.01"),
    *("epsilon_anneal_time=200000", "test_interval=50000", "test_nepisode=100", "use_cuda=False"),
)


def curve(given: argparse.Namespace, game: str, seed: int) -> Tests:
    """The tests of one run: environment steps and returns in our unit."""
    main = given.epymarl.resolve() / "src" / "main.py"
    kept = given.epymarl.resolve() / "results" / "sacred" / "iql" / "spread"  # EPyMARL's choice
    before = set(kept.glob("*/metrics.json"))
    words = [*IQL, f"seed={seed}", f"t_max={given.steps}"]
    done = subprocess.run(
        [given.epymarl_python, "-c", PLAYER, game, str(given.particles), str(main), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = set(kept.glob("*/metrics.json")) - before
    if done.returncode or len(found) != 1:
        raise SystemExit(f"EPyMARL could not run:\n{done.stderr[-2000:]}")
    tests = json.loads(found.pop().read_text())["test_return_mean"]
    values = [value["value"] if isinstance(value, dict) else value for value in tests["values"]]
    if game == "particles":
        values = [(value + 75) / 2 for value in values]
    return list(zip(tests["steps"], values, strict=True))


def joined(rows: Rows, method: str, game: str, seed: int, tests: Tests, out: Path) -> Rows:
    """The file's rows with those of a run, written."""
    run = {"method": method, "game": game, "seed": str(seed)}
    rows = [row for row in rows if not run.items() <= row.items()]
    rows += [{**run, "env_steps": str(at), "return": f"{value:.4f}"} for at, value in tests]
    rows.sort(key=lambda r: (r["method"], r["game"], int(r["seed"]), int(r["env_steps"])))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{method}, {game}, seed {seed}: {tests[-1][1]:.1f} after {tests[-1][0]:,} steps")
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epymarl_learning")
    parser.add_argument("--epymarl", type=Path, help="a checkout of EPyMARL")
    parser.add_argument("--epymarl-python", default=sys.executable, help="that has what it needs")
    parser.add_argument("--particles", type=Path, help="a checkout of the older particle world")
    parser.add_argument("--games", default="", help="of mpe2,particles; default: all there are")
    parser.add_argument("--steps", type=int, default=500_000, help="environment steps of a run")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--ours", type=Path, nargs="+", default=[], help="runs of ours on Spread")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file")
    given = parser.parse_args(words)
    games = [game for game in given.games.split(",") if game] or list(GAMES)
    if not (given.games or given.particles):
        games.remove("particles")
    if set(games) - set(GAMES) or ("particles" in games and not given.particles):
        parser.error("--games are mpe2 and, with --particles, particles.")
    if not (given.epymarl or given.ours):
        parser.error("Name a checkout (--epymarl), runs of ours (--ours), or both.")
    rows = read(given.out.parent, given.out.stem)
    for run in given.ours:
        tests = [row for row in tests_of(run) if "return" in row]
        if not tests:
            parser.error(f"{run} has no tests of a team's return.")
        own = [(int(row["env_steps"]), float(row["return"])) for row in tests]
        told = tests[0]["method"], "mpe2", int(tests[0]["seed"])
        rows = joined(rows, *told, own, given.out)
    for game in games if given.epymarl else ():
        for seed in (int(seed) for seed in given.seeds.split(",")):
            rows = joined(rows, THEIRS, game, seed, curve(given, game, seed), given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
