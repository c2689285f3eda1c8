"""Runs of policies (PPO, COMA) beyond training: fine-tuning, critics on loading."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.components.episodes import EpisodeBatch
from omg.evaluation.finetune import Finetuner
from omg.learners.base import Metrics, Progress
from omg.learners.ppo_learner import PPOLearner
from omg.types import OmgError

from .studies import make_pool, make_run
from .test_crossplay import seated

PPO = ["--mlp_hidden_dims=[16]", "--critic_hidden_dims=[16]", "--ppo_epochs=1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("policies")
    make_run(root, "ppo", "--config=ppo", *PPO, f"--opponent_pool={make_pool(root)}")
    make_run(root, "mappo", "--config=mappo", *PPO)
    return root


@pytest.mark.long
@pytest.mark.parametrize(("episodes", "used"), [(12, 12), (10, 9), (3, 3)])
def test_fine_tuning_of_a_policy_uses_whole_waves_and_each_episode_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, episodes: int, used: int
) -> None:
    """Four copies: of an unfinished wave the shortest episodes would come first."""
    sizes: list[int] = []
    original = PPOLearner.train

    def train(self: PPOLearner, batch: EpisodeBatch, progress: Progress) -> Metrics:
        sizes.append(len(batch))
        return original(self, batch, progress)

    monkeypatch.setattr(PPOLearner, "train", train)
    with seated(root, "ppo", episodes=4) as agent:
        tuner = Finetuner(agent)
        lineup = agent.lineup([agent.pool.member("script-random-0")])
        assert tuner.train(lineup, episodes=episodes, stream="a") == len(sizes)
    assert sum(sizes) == used
    waves = -(-episodes // 4)
    assert all(size % (episodes // waves) == 0 for size in sizes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--critic=ac", "critic=cv"),
        ("--critic_hidden_dims=[8]", r"critic_hidden_dims=\[16\]"),
        ("--standardise_values=False", "standardise_values=True"),
    ],
)
def test_another_critic_is_named_when_training_goes_on_from_a_checkpoint(
    root: Path, word: str, told: str
) -> None:
    words = ["--config=mappo", *(w for w in PPO if w.split("=")[0] != word.split("=")[0]), word]
    with pytest.raises(OmgError, match=told):
        make_run(root, f"again{word[:14]}", *words, f"--checkpoint_path={root / 'mappo'}")


def test_a_policy_is_evaluated_whatever_critic_it_was_trained_with(root: Path) -> None:
    words = ["--config=mappo", *PPO, "--critic=ac", "--evaluate"]
    make_run(root, "evaluated", *words, f"--checkpoint_path={root / 'mappo'}")
