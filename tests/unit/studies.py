"""Small studies for the tests of evaluation: a pool, and agents that learned with it."""

from __future__ import annotations

from pathlib import Path

from omg.cli.train import train
from omg.opponents.pool import OpponentPool

SMALL = [
    *("--env-config=foraging", "--t_max=200", "--batch_size=4", "--test_nepisode=4", "--quiet"),
    *("--test_interval=100000", "--batch_size_run=4", "--use_tensorboard=False"),
    *("--use_sacred=False", "--rnn_hidden_dim=16", "--resume_interval=0"),
]
TASK = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=12"]
TASK3 = ["with", "env_args.key=Foraging-6x6-3p-2f-v3", "env_args.max_episode_steps=8"]
# Food of level 1: anybody can take it alone.
EASY = ["env_args.max_food_level=1", "env_args.min_player_level=1", "env_args.max_player_level=1"]
SUBGOALS = ["--subgoal_dim=8", "--am_hidden_dim=32", "--prior_min_accuracy=0"]
MEMBERS = {
    "train": ["iql-200", "script-nearest_food-0.1"],
    "heldout": ["script-random-0", "script-highest_level-0.2"],
}


def make_run(root: Path, name: str, *words: str, task: list[str] = TASK) -> Path:
    """Train for a moment; the run's folder."""
    places = [f"--local_results_path={root}", f"--run_name={name}"]
    return Path(train([*SMALL, *words, *places, *task]).folder)


def make_pool(root: Path) -> Path:
    """Two members to train with, two held out."""
    make_run(root, "iql", "--config=iql")
    pool = OpponentPool.create(root / "pool")
    pool.add_run(root / "iql")
    pool.add_script("nearest_food", noise=0.1)
    pool.add_script("random", split="heldout")
    pool.add_script("highest_level", noise=0.2, split="heldout")
    return root / "pool"


def make_study(root: Path) -> Path:
    """pool, runs naive-s1, naive-s2 (label 'Naive') and omg-s1 (no label), and their prior."""
    pool = [f"--opponent_pool={make_pool(root)}"]
    for seed in (1, 2):
        words = ["--config=iql_am", f"--seed={seed}", "--label=Naive", *pool]
        make_run(root, f"naive-s{seed}", *words)
    omg = ["--config=iql_omg", *SUBGOALS, *pool]
    make_run(root, "prior", "--learner=am_learner", *omg)
    make_run(root, "omg-s1", *omg, f"--init_param_path={root / 'prior'}")
    return root
