"""`python -m benchmarks.overlap`: env-steps per second with `collect_ahead=1` over those with 0.

Each task is trained twice at the same time, once playing and learning in turns in one process, once
with the collector's process beside the learner's. Short windows of both alternate in one run; the
one that is not measured stands still. The ratio of a round is that of its two windows; the median
over the rounds is reported, with the smallest and the largest.

On a machine whose cores are busy with something else the ratio says little: there is no second core
to play on. `cpu` says what an idle one allows at most: CPU seconds per step of the one process over
those that are left for the learner's.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from omg.cli.train import train
from omg.config.loader import load_command_line
from omg.experiment.learning import Counters
from omg.experiment.run import Run
from omg.experiment.training import Parts
from omg.opponents.pool import OpponentPool
from omg.storage.files import create_run_folder

SECONDS, ROUNDS = 1.5, 3
QUIET = ("--quiet", "--use_sacred=False", "--use_tensorboard=False", "--test_nepisode=1")
FORAGING = ("--env-config=foraging", "--env_args.key=Foraging-8x8-2p-3f-v3")
# 16 copies, batch 32, one update per episode.
QMIX = ("--config=qmix", *FORAGING)
# The same game by its own package, in Python: playing costs about as much as learning.
FOREIGN = (
    *("--config=qmix", "--env-config=gymma", "--batch_size_run=16", "--gamma=0.95"),
    *("--optimizer=adam", "--env_args.key=lbforaging:Foraging-8x8-2p-3f-v3"),
)
OMG = ("--config=d3qn_omg", *FORAGING, "--prior_min_accuracy=0")


@dataclass
class Side:
    """One run that is trained in windows."""

    parts: Parts
    counters: Counters = field(default_factory=Counters)
    cpu: float = 0.0  # seconds of this process in all windows
    timed_steps: int = 0  # environment steps in all windows

    def _step(self) -> None:
        parts, counters = self.parts, self.counters
        finished = parts.rollout.step(counters.env_steps)
        counters.env_steps += parts.rollout.stepped_last
        if finished is None:
            return
        parts.learning.take(finished.episodes, counters)
        for _ in parts.learning.learn(counters):
            pass

    def warm(self) -> None:
        """Until updates are made."""
        while self.counters.updates < 2:
            self._step()

    def speed(self, seconds: float) -> float:
        """Environment steps per second of so many seconds."""
        first, start, cpu = self.counters.env_steps, perf_counter(), process_time()
        while perf_counter() - start < seconds:
            self._step()
        passed, made = perf_counter() - start, self.counters.env_steps - first
        self.cpu += process_time() - cpu
        self.timed_steps += made
        return made / passed


@contextmanager
def _side(words: Sequence[str], folder: Path, ahead: int) -> Iterator[Side]:
    place = (f"--local_results_path={folder}", f"--run_name=ahead-{ahead}")
    config = load_command_line([*words, *QUIET, *place, f"--collect_ahead={ahead}"]).config
    with Run(config, create_run_folder(config)) as run:
        yield Side(run.parts)


def _omg(folder: Path) -> tuple[str, ...]:
    """OMG beside a scripted opponent, with a prior that has learned nothing."""
    OpponentPool.create(folder / "pool").add_script("nearest_food")
    words = (*OMG, f"--opponent_pool={folder / 'pool'}")
    made = ("--learner=am_learner", "--t_max=20", f"--local_results_path={folder}")
    return (*words, f"--init_param_path={train([*words, *QUIET, *made]).folder}")


CASES: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "overlap": lambda _: QMIX,
    "overlap_foreign": lambda _: FOREIGN,
    "overlap_omg": _omg,
}


def overlap(
    case: str = "overlap", *, seconds: float = SECONDS, rounds: int = ROUNDS, ahead: int = 1
) -> dict[str, float]:
    """Speed with and without, and their ratio."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as both:
        words = CASES[case](Path(name))
        beside, alone = (both.enter_context(_side(words, Path(name), n)) for n in (ahead, 0))
        for side in (beside, alone):
            side.warm()
        pairs = [(beside.speed(seconds), alone.speed(seconds)) for _ in range(rounds)]
    ratios = sorted(a / b for a, b in pairs)
    return {
        "ours": median(a for a, _ in pairs),
        "reference": median(b for _, b in pairs),
        "ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "cpu": (alone.cpu / alone.timed_steps) / (beside.cpu / beside.timed_steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; none: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a window")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--ahead", type=int, default=1, help="collect_ahead")
    given = parser.parse_args()
    for name in given.cases or CASES:
        found = overlap(name, seconds=given.seconds, rounds=given.rounds, ahead=given.ahead)
        print(
            f"{name:16} {found['ours']:8,.0f} / {found['reference']:8,.0f} steps/s = "
            f"{found['ratio']:.2f} ({found['lowest']:.2f} to {found['highest']:.2f}), "
            f"cpu {found['cpu']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
