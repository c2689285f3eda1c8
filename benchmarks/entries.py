"""Every benchmark: what it compares, what is wanted of it, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks import memory, omg, ours, predator_prey, products, spread
from benchmarks.clock import now
from benchmarks.overlap import overlap
from benchmarks.reference import measure
from benchmarks.reference.episode_data import Sizes, bytes_per_transition
from benchmarks.training import Training, config_of

Found = dict[str, float]  # ours, and where there is another side: reference, ratio, its range
Measure = Callable[[], float]
ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One comparison; `ratio` is ours / reference in the given unit."""

    what: str
    unit: str
    run: Callable[[], Found]
    wanted: float | None = None  # None: only reported
    larger: bool = True  # a larger ratio is better
    threads: tuple[int, ...] = (1,)  # of torch, each measured
    checked: bool = True  # False: only to look at
    slack: float = 0.7  # of the recorded ratio, what noise may take

    @property
    def goal(self) -> str:
        """What is wanted, in a table."""
        return "-" if self.wanted is None else f"{'≥' if self.larger else '≤'} {self.wanted:g}x"


def compare(ours_: Measure, reference: Measure, *, rounds: int = ROUNDS) -> Found:
    """Median of both sides and of their ratio, alternating."""
    pairs = [(ours_(), reference()) for _ in range(rounds)]
    ratios = sorted(a / b for a, b in pairs)
    return {
        "ours": median(a for a, _ in pairs),
        "reference": median(b for _, b in pairs),
        "ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def storage() -> Found:
    """Bytes of a stored step."""
    sizes = Sizes(n_agents=2, obs_size=15, state_size=15, n_actions=6, episode_limit=50)
    mine, theirs = float(ours.stored_bytes()), float(bytes_per_transition(sizes))
    return {"ours": mine, "reference": theirs, "ratio": mine / theirs}


@ours.threads_of_a_run()
def ppo() -> Found:
    """One process, 256 copies, one update of 4 epochs per 256 episodes."""
    words = ("--config=ippo", "--env-config=predator_prey")
    copies = ("--batch_size_run=256", "--batch_size=256")
    return {"ours": Training(config_of((*words, *copies))).steps_per_second(5.0, now)}


BENCHMARKS: dict[str, Benchmark] = {
    "environment": Benchmark(
        what="Foraging-8x8-2p-3f, 1,024 native copies vs lbforaging",
        unit="env-steps/s",
        wanted=100,
        run=lambda: compare(
            lambda: ours.foraging_steps(1024, 1.0), lambda: ours.lbforaging_steps(1.0)
        ),
    ),
    "predator_prey": Benchmark(
        what="Predator-Prey 3v1, 1,024 native copies vs mpe2",
        unit="env-steps/s",
        wanted=100,
        run=lambda: compare(
            lambda: predator_prey.native_steps(1024, 1.0), lambda: predator_prey.mpe2_steps(1.0)
        ),
    ),
    "spread": Benchmark(
        what="Spread, 3 agents, 1,024 native copies vs mpe2",
        unit="env-steps/s",
        wanted=100,
        run=lambda: compare(lambda: spread.native_steps(1024, 1.0), lambda: spread.mpe2_steps(1.0)),
    ),
    "rollout": Benchmark(
        what="recurrent policy, native batch of 256 vs one environment, one forward per step",
        unit="env-steps/s",
        wanted=50,
        run=lambda: compare(
            lambda: ours.rollout_steps(256, 1.0), lambda: measure.measure_rollout(1.0)
        ),
    ),
    "training": Benchmark(
        what="QMIX-RNN, batch 32 x 50, hidden 64, one update per episode vs per-step unrolls",
        unit="env-steps/s",
        wanted=12,
        threads=(1, 2),
        run=lambda: compare(
            lambda: ours.training_steps(5.0), lambda: measure.measure_training(5.0), rounds=3
        ),
    ),
    "update": Benchmark(
        what="one QMIX-RNN update of that size, full-length episodes vs per-step unrolls",
        unit="updates/s",
        threads=(1, 2),
        run=lambda: compare(
            lambda: 1 / ours.update_seconds(12),
            lambda: 1 / measure.measure_update(n=8, state_size=15),
        ),
    ),
    "products": Benchmark(
        what="that update vs its bare matrix products",
        unit="ms",
        wanted=2.5,
        larger=False,
        threads=(1, 2),
        run=lambda: compare(
            lambda: 1e3 * ours.update_seconds(12), lambda: 1e3 * products.products_seconds(12)
        ),
    ),
    "gru": Benchmark(
        what="GRU forward + backward, 64 rows x 51 steps x 64 vs torch's",
        unit="passes/s",
        wanted=4,
        threads=(2, 1),
        run=lambda: compare(
            ours.threads_of_a_run()(lambda: ours.gru_passes(own=True)),
            lambda: ours.gru_passes(own=False),
        ),
    ),
    "spread_training": Benchmark(
        what="QMIX-RNN on Spread, 8 copies, 32 x 26 (beside JaxMARL: benchmarks.peers)",
        unit="env-steps/s",
        checked=False,
        threads=(1, 2),
        run=lambda: {"ours": spread.training_steps(8.0)},
    ),
    "ppo": Benchmark(
        what="PPO (ippo) on Predator-Prey, 256 copies",
        unit="env-steps/s",
        checked=False,
        threads=(1, 2),
        run=ppo,
    ),
    "omg_update": Benchmark(
        what="OMG update, H = 5, 64 trajectories x 50 vs IQL on the same episodes",
        unit="µs",
        wanted=4,
        larger=False,
        run=lambda: omg.update()["iql"],
    ),
    "omg_acting": Benchmark(
        what="OMG vs IQL acting in a mixed team, 256 copies, without the environment",
        unit="env-steps/s",
        wanted=0.4,
        run=lambda: omg.acting(256)["act"],
    ),
    "omg_rollout": Benchmark(
        what="OMG vs IQL in a mixed team, 256 copies, with environment and storing",
        unit="env-steps/s",
        wanted=0.4,
        run=lambda: omg.acting(256)["step"],
    ),
    "stacked": Benchmark(
        what="512 rows of 64 frozen members vs of one member",
        unit="rows/s",
        wanted=0.5,
        run=omg.stacked,
    ),
    "storage": Benchmark(
        what="stored transition of Foraging-8x8-2p-3f vs PyMARL's layout",
        unit="bytes",
        wanted=0.5,
        larger=False,
        slack=0.98,
        run=storage,
    ),
    "memory": Benchmark(
        what="peak of a process with 5,000 episodes, 8 agents x 80 x 120, float16 vs PyMARL's",
        unit="MB",
        wanted=0.5,
        larger=False,
        slack=0.9,
        run=lambda: memory.compared("float16"),
    ),
    "memory_float32": Benchmark(
        what="the same with float32 observations (the default)",
        unit="MB",
        larger=False,
        slack=0.9,
        run=lambda: memory.compared("float32"),
    ),
    "overlap": Benchmark(
        what="QMIX-RNN on Foraging, collect_ahead=1 vs 0",
        unit="env-steps/s",
        checked=False,
        run=overlap,
    ),
    "overlap_foreign": Benchmark(
        what="the same on the lbforaging package, collect_ahead=1 vs 0",
        unit="env-steps/s",
        checked=False,
        run=lambda: overlap("overlap_foreign"),
    ),
}
