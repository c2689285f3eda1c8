"""A collector in a thread of this process, and small runs with one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path

import pytest

import omg.experiment.run
from omg.cli.train import train
from omg.config.schema import Config
from omg.runners.overlap import Link
from omg.runners.overlap.child import Host, serve

TASK = [
    *("--env-config=foraging", "--env_args.key=Foraging-5x5-2p-1f-v3"),
    "--env_args.max_episode_steps=15",
]
# A counting game that cannot be copied in mid-episode.
COUNTER = ["--env-config=pymarl", "--env_args.key=tests.unit.counter_game:CounterEnv"]
SETTINGS = [
    *("--t_max=700", "--batch_size=8", "--runner=batch"),
    *("--test_nepisode=6", "--test_interval=300", "--batch_size_run=3", "--quiet"),
    *("--runner_log_interval=100", "--learner_log_interval=100", "--use_tensorboard=False"),
    *("--use_sacred=False", "--save_model_interval=300", "--resume_interval=300"),
    *("--rnn_hidden_dim=16", "--epsilon_anneal_time=300"),
]
SMALL = ["--config=qmix", *TASK, *SETTINGS]


class ThreadLink(Link):
    """Fast to start; everything but the process is the same."""

    def __init__(self, config: Config) -> None:
        mine, self._theirs = Pipe()
        super().__init__(mine)
        host = Host(config)  # here, as it draws weights from torch's own random stream
        self._thread = threading.Thread(target=serve, args=(self._theirs, lambda: host))
        self._thread.start()

    def end(self, *, grace: float) -> None:
        super().end(grace=grace)
        self._thread.join()
        self._theirs.close()


def run(folder: Path, *words: str, small: Sequence[str] = SMALL) -> Path:
    """A whole small run; its folder."""
    return Path(train([*small, f"--local_results_path={folder}", *words]).folder)


def use_threads(patch: pytest.MonkeyPatch) -> None:
    """Let runs start threads instead of processes."""
    patch.setattr(omg.experiment.run, "CollectorProcess", ThreadLink)
