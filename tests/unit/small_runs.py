"""Whole runs of any algorithm, as small as they can be; see `every_algorithm.TABLE`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from omg.cli.train import train
from omg.experiment.output import read_metrics
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.learners import LEARNERS
from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.opponents.pool import OpponentPool
from omg.storage.files import load_tensors

from .every_algorithm import TABLE
from .small_learners import SMALL, shipped

STEPS = 78  # environment steps of a run
TASK = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"]
SHORT = [
    *("--batch_size=2", "--batch_size_run=3", "--quiet", "--oracle_steps=1"),
    *("--test_nepisode=2", "--test_interval=100000", "--use_tensorboard=False"),
    *("--use_sacred=False", "--runner_log_interval=20", "--learner_log_interval=20"),
    *("--prior_min_accuracy=0", "--n_workers=2", "--save_model_interval=100000"),
]


class Runs:
    """Runs in one folder, with the opponents and the priors they need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = folder / "pool"
        OpponentPool.create(self.pool).add_script("nearest_food")

    def run(self, name: str, *more: str, steps: int = STEPS) -> Path:
        """A whole run; its folder."""
        config, prior = shipped(name), []
        gathers = LEARNERS[config.learner].gathers
        if issubclass(model_kind(config), SubgoalModel) and not gathers:
            prior = [f"--init_param_path={self.prior(name)}"]
        one = config.mac == "multi_module_mac" and not TABLE[name].everyone and not gathers
        agents = 2 if one else 1  # each counts one step
        return self._train(name, f"--t_max={steps // agents}", *prior, *more)

    def prior(self, name: str) -> Path:
        """The prior of a subgoal algorithm, made once."""
        label = f"prior of {name}"
        if not (self.folder / label).is_dir():
            self._train(name, "--learner=am_learner", "--t_max=20", f"--run_name={label}")
        return self.folder / label

    def _train(self, name: str, *more: str) -> Path:
        row, others = TABLE[name], []
        if shipped(name).mac == "multi_module_mac" and not row.everyone:
            others = [f"--opponent_pool={self.pool}"]
        words = [f"--config={row.config or name}", *SMALL, *SHORT, *row.words, *others, *more]
        return Path(train([*words, f"--local_results_path={self.folder}", *TASK]).folder)

    def stopped_and_resumed(self, name: str, *more: str) -> Path:
        """A run that is stopped in its middle as by Ctrl-C, and continued."""
        label = f"--run_name=stopped {name}"
        step = TrainingLoop._step

        def stop(loop: TrainingLoop) -> None:
            step(loop)
            loop.stop.requested = loop.counters.env_steps >= STEPS // 2

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrainingLoop, "_step", stop)
            with pytest.raises(RunInterrupted):
                self.run(name, *more, label)
        return self.run(name, *more, label, "--resume")


def records(run: Path) -> list[dict[str, Any]]:
    """Everything that was logged, but how long it took."""
    found = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in found]


def saved(run: Path) -> dict[str, Tensor]:
    """All weights of the last model, by file and name."""
    last = run / "models" / "last"
    found = [*last.rglob("*.th"), *last.rglob("*.pth")]
    files = sorted(path for path in found if path.name != "opt.th")
    return {
        f"{path.relative_to(last)}/{name}": value
        for path in files
        for name, value in load_tensors(path).items()
    }


def assert_sound(run: Path, updates: int = 2) -> None:
    """It made so many updates or more, and all it logged are numbers."""
    found = records(run)
    assert max(record.get("updates", 0) for record in found) >= updates
    learned = [key for record in found for key in record if key.endswith("loss")]
    assert learned
    for record in found:
        for key, value in record.items():
            assert math.isfinite(value), key
    assert all(torch.isfinite(weight).all() for weight in saved(run).values())


def assert_same(one: Path, other: Path) -> None:
    """Equal to the last digit."""
    assert records(one) == records(other)
    mine, theirs = saved(one), saved(other)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
