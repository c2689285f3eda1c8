"""`python -m benchmarks.peers`: ours beside JaxMARL and EPyMARL, on the same tasks and sizes.

    python -m benchmarks.peers --jaxmarl ../JaxMARL --jaxmarl-python ../venv-jax/bin/python
    python -m benchmarks.peers --epymarl ../epymarl --epymarl-python ../venv-epymarl/bin/python

A peer is a checkout of its repository, with a Python that has what it needs; nothing of it is part
of this one. All sides are bound to the same cores (`--cores`) and measure in turns, never at once:
on one core in CPU seconds of the process, so that other jobs disturb less, on several by the clock.
A peer's speed is that between a short and a long run, so that compiling, starting and filling the
buffer do not count. The median of the ratios of all rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from benchmarks.against import CASES, HERE, Side, Worker
from benchmarks.report import markdown_table, plain_table

# Runs in the peer's Python. Answers every line with environment steps per second.
JAXMARL = """
import importlib.util, json, sys, time, types
file, clock, short, long, settings = sys.argv[1:]
clock, settings = getattr(time, clock), json.loads(settings)
sys.modules["wandb"] = types.ModuleType("wandb")
sys.modules["wandb"].log = lambda *_: None
spec = importlib.util.spec_from_file_location("baseline", file)
baseline = importlib.util.module_from_spec(spec)
spec.loader.exec_module(baseline)
import jax
key, each = jax.random.PRNGKey(0), settings["NUM_ENVS"] * settings["NUM_STEPS"]
def compiled(updates):
    config = {**settings, "TOTAL_TIMESTEPS": updates * each}
    env = [baseline.env_from_config(config)[0]] if hasattr(baseline, "env_from_config") else []
    return jax.jit(baseline.make_train(config, *env)).lower(key).compile()
runs = [compiled(int(updates)) for updates in (short, long)]
def seconds(run):
    start = clock()
    jax.block_until_ready(run(key))
    return clock() - start
for run in runs:
    seconds(run)
print("ready", flush=True)
for _ in sys.stdin:
    took = [seconds(run) for run in runs]
    print((int(long) - int(short)) * each / (took[1] - took[0]), flush=True)
"""
SPREAD = {"ENV_NAME": "MPE_simple_spread_v3", "ENV_KWARGS": {}, "WANDB_MODE": "disabled"}
QMIX = {
    **SPREAD,
    "NUM_ENVS": 8,
    "NUM_STEPS": 26,
    "BUFFER_SIZE": 5000,
    "BUFFER_BATCH_SIZE": 32,
    "HIDDEN_SIZE": 64,
    "MIXER_EMBEDDING_DIM": 32,
    "MIXER_HYPERNET_HIDDEN_DIM": 64,
    "MIXER_INIT_SCALE": 0.001,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "MAX_GRAD_NORM": 25,
    "TARGET_UPDATE_INTERVAL": 200,
    "TAU": 1.0,
    "LR": 0.005,
    "NUM_EPOCHS": 8,
    "LEARNING_STARTS": 0,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.9,
    "TEST_DURING_TRAINING": False,
    "TEST_NUM_ENVS": 1,
    "TEST_NUM_STEPS": 1,
}
IPPO = {
    **SPREAD,
    "NUM_ENVS": 64,
    "NUM_STEPS": 25,
    "FC_DIM_SIZE": 64,
    "GRU_HIDDEN_DIM": 64,
    "LR": 5e-4,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 2,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.3,
    "SCALE_CLIP_EPS": False,
    "ENT_COEF": 0.01,
    "VF_COEF": 1.0,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
    "SEED": 0,
}
FORAGING = (
    *("--config=qmix", "--env-config=gymma", "with"),
    *("env_args.key=lbforaging:Foraging-8x8-2p-3f-v3", "env_args.time_limit=50"),
    *("use_rnn=True", "hidden_dim=64", "batch_size=32", "obs_last_action=True", "use_cuda=False"),
    *("test_nepisode=1", "test_interval=1000000000", "log_interval=1000000000"),
    *("runner_log_interval=1000000000", "learner_log_interval=1000000000"),
)


class Measured(Protocol):
    """Something whose training speed is measured again and again."""

    def measure(self) -> float: ...

    def close(self) -> None: ...


class JaxMARL(Worker):
    """One of its baselines, compiled once, in a process of its own."""

    def __init__(
        self,
        python: Path,
        file: Path,
        settings: dict[str, Any],
        updates: tuple[int, int],
        one: bool,
    ) -> None:
        flags = "--xla_cpu_multi_thread_eigen=false" if one else ""
        clock = "process_time" if one else "perf_counter"
        told = (str(file), clock, *map(str, updates), json.dumps(settings))
        super().__init__(
            (str(python), "-c", JAXMARL, *told),
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
            name="JaxMARL",
        )


class EPyMARL:
    """Two runs of its command in every measurement, a short one and a long one."""

    def __init__(self, python: Path, repository: Path, steps: tuple[int, int], cores: int) -> None:
        self._python, self._main, self._steps = python, repository / "src" / "main.py", steps
        self._cores = cores

    def _seconds(self, steps: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            process = subprocess.Popen(
                [
                    *(str(self._python), str(self._main), *FORAGING),
                    *(f"t_max={steps}", f"local_results_path={folder}"),
                ],
                env={**os.environ, "OMP_NUM_THREADS": str(self._cores), "PYTHONPATH": ""},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            _, told = process.communicate()
            if process.returncode:
                raise SystemExit(f"EPyMARL could not run:\n{told[-2000:]}")
            return time.perf_counter() - start

    def measure(self) -> float:
        if self._cores > 1:
            took = [self._seconds(steps) for steps in self._steps]
        else:
            took = []
            for steps in self._steps:
                before = os.times()
                self._seconds(steps)
                after = os.times()
                took.append(
                    after.children_user
                    + after.children_system
                    - before.children_user
                    - before.children_system
                )
        return (self._steps[1] - self._steps[0]) / (took[1] - took[0])

    def close(self) -> None:
        return


@dataclass(frozen=True)
class Comparison:
    """A case of ours (`benchmarks.against.CASES`) and a peer that does the same."""

    peer: str
    case: str
    more: tuple[str, ...]  # words for our side
    start: Callable[[argparse.Namespace], Measured]


def _jaxmarl(
    file: str, settings: dict[str, Any], updates: tuple[int, int]
) -> Callable[[argparse.Namespace], Measured]:
    def start(given: argparse.Namespace) -> Measured:
        path = given.jaxmarl / "baselines" / file
        return JaxMARL(given.jaxmarl_python, path, settings, updates, len(given.cores) == 1)

    return start


def _epymarl(given: argparse.Namespace) -> Measured:
    return EPyMARL(given.epymarl_python, given.epymarl, (2500, 5000), len(given.cores))


COMPARISONS = {
    "qmix_spread": Comparison(
        "JaxMARL", "qmix_spread", (), _jaxmarl("QLearning/qmix_rnn.py", QMIX, (40, 80))
    ),
    "ippo_spread": Comparison(
        "JaxMARL", "ippo_spread", (), _jaxmarl("IPPO/ippo_rnn_mpe.py", IPPO, (2, 22))
    ),
    "ippo_trunk_spread": Comparison(
        *("JaxMARL", "ippo_spread", ("--share_trunk=true",)),
        _jaxmarl("IPPO/ippo_rnn_mpe.py", IPPO, (2, 22)),
    ),
    "qmix_foraging": Comparison("EPyMARL", "qmix_foraging", (), _epymarl),
}


def compare(asked: Comparison, given: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Speeds of ours and of the peer, round by round."""
    cores = len(given.cores)
    words = [*CASES[asked.case][1], *asked.more]
    clock = "process_time" if cores == 1 else "perf_counter"
    sides: list[Measured] = [Side(HERE, words, given.seconds, threads=cores, clock=clock)]
    try:
        sides.append(asked.start(given))
        pairs = [tuple(side.measure() for side in sides) for _ in range(given.rounds)]
    finally:
        for side in sides:
            side.close()
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(COMPARISONS)}")
    for peer in ("jaxmarl", "epymarl"):
        parser.add_argument(f"--{peer}", type=Path, help="checkout of its repository")
        parser.add_argument(f"--{peer}-python", type=Path, help="a Python with what it needs")
    parser.add_argument("--cores", default="0", help="such as 0 or 0,1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of ours")
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    given = parser.parse_args(words)
    given.cores = [int(core) for core in given.cores.split(",")]
    unknown = set(given.cases) - set(COMPARISONS)
    if unknown:
        parser.error(f"no case called {', '.join(sorted(unknown))}")
    there = {peer for peer in ("JaxMARL", "EPyMARL") if _named(given, peer)}
    given.cases = given.cases or [n for n, c in COMPARISONS.items() if c.peer in there]
    missing = {COMPARISONS[name].peer for name in given.cases} - there
    if missing or not given.cases:
        peer = min(missing or {"JaxMARL"})
        parser.error(
            f"where {peer} is must be said: --{peer.lower()} <checkout> and "
            f"--{peer.lower()}-python <python>"
        )
    return given


def _named(given: argparse.Namespace, peer: str) -> bool:
    name = peer.lower()
    return None not in (getattr(given, name), getattr(given, f"{name}_python"))


def main(words: Sequence[str] | None = None) -> None:
    given = _parsed(words)
    os.sched_setaffinity(0, given.cores)  # all processes started from here inherit it
    rows = []
    for name in given.cases:
        asked = COMPARISONS[name]
        ours, theirs = compare(asked, given)
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        rows.append(
            [
                " ".join([CASES[asked.case][0], *asked.more]),
                *(asked.peer, str(len(given.cores))),
                *(f"{median(ours):,.0f}", f"{median(theirs):,.0f}"),
                *(f"{median(ratios):.2f}x", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"),
            ]
        )
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["training", "peer", "cores", "ours, env-steps/s", "peer", "ratio", "range"]
    print((markdown_table if given.markdown else plain_table)(header, rows))


if __name__ == "__main__":
    main()
