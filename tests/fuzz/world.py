"""What the cases work on: small runs, a pool, an evaluation, a cross-play and a study, made once
and copied for every case."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .children import Task, run

TASK = ("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6")
SMALL = (
    *("--env-config=foraging", "--t_max=24", "--batch_size=2", "--buffer_size=16", "--quiet"),
    *("--test_nepisode=2", "--batch_size_run=2", "--rnn_hidden_dim=16", "--am_hidden_dim=8"),
    *("--use_tensorboard=False", "--use_sacred=False", "--save_model_interval=12"),
    *("--resume_interval=12", "--subgoal_dim=4", "--prior_min_accuracy=0", "--test_interval=24"),
    *("--critic_hidden_dims=[8]", "--mlp_hidden_dims=[8]"),
)
IN_RESULTS = ("--local_results_path=results",)
POOL = ("--opponent_pool=pool",)
# Leaves a file behind when somebody imports it, or builds what it names.
TRAP = """
import os
from omg.envs.foraging.env import ForagingEnv as Env
from omg.modules.agents.networks import RNNAgent as Agent

open(os.environ["OMG_FUZZ_TRAP"], "w").close()
"""


def train(config: str, name: str, *words: str) -> tuple[str, ...]:
    """The words of a small run."""
    return ("train", f"--config={config}", *SMALL, *IN_RESULTS, f"--run_name={name}", *words, *TASK)


STEPS: tuple[tuple[str, ...], ...] = (
    train("iql", "iql"),
    train("iql", "iql-2", "--seed=2"),
    train("qmix", "qmix"),
    ("pool", "add", "pool", "results/iql"),
    ("pool", "add", "pool", "--script=nearest_food", "--noise=0.1"),
    ("pool", "add", "pool", "--script=random", "--split=heldout"),
    train("iql_am", "agent", *POOL, "--label=Naive"),
    train("iql_am", "agent-2", *POOL, "--label=Naive", "--seed=2"),
    train("iql_omg", "prior", *POOL, "--learner=am_learner"),
    train("iql_omg", "omg", *POOL, "--init_param_path=results/prior"),
    train("ppo", "ppo", *POOL),
    ("evaluate", "results/agent", "--episodes=2", "--replays=1", "--split=both"),
    (
        *("crossplay", "results/agent", "results/agent-2", "results/omg", "--episodes=2"),
        *("--out=crossplay", "--replays=1"),
    ),
)
STUDY = ("pipeline", "--pipeline=tiny", "--out=study")


class World:
    """The folder that is copied; `cache` holds compiled kernels, which all cases share."""

    def __init__(self, root: Path, *, study: bool) -> None:
        self.root, self.cache = root, root / "cache"
        self.folder = root / "world" / "here"
        self.folder.mkdir(parents=True)
        steps = (*STEPS, STUDY) if study else STEPS
        for words in steps:
            done = run(Task(words, self.folder, self.environ(self.folder), patience=300))
            if done.code != 0:
                raise SystemExit(f"The cases cannot be prepared: omg {' '.join(words)}\n{done.err}")
        self._make_team()
        (self.folder / "trap.py").write_text(TRAP)

    def _make_team(self) -> None:
        """Weights where a team string looks for them."""
        team = self.folder / "team"
        shutil.copytree(self.folder / "results/iql/models/last", team / "iql")

    def copy_cache(self, place: Path) -> None:
        """The compiled kernels, to be damaged."""
        shutil.copytree(self.cache, place)

    def environ(self, folder: Path) -> dict[str, str]:
        """Of a command that works in a copy at `folder`."""
        return {
            "OMG_CACHE": str(self.cache),
            "HOME": str(folder),
            "OMG_FUZZ_TRAP": str(folder.parent / "sprung"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2])]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def copy(self, place: Path, *, study: bool = False) -> Path:
        """A copy at place/here, without the study where that is not needed."""
        folder = place / "here"
        ignore = None if study else (lambda at, names: ["study"] if at == str(self.folder) else [])
        shutil.copytree(self.folder, folder, symlinks=True, ignore=ignore)
        return folder
