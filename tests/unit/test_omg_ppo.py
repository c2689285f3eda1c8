"""OMG on PPO: the critic selects, the features are those of acting, the stages run in a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omg.cli.train import train
from omg.controllers.team import MultiModuleMAC
from omg.experiment.output import read_metrics
from omg.learners.base import Progress
from omg.learners.model_training import Alternatives
from omg.learners.ppo_learner import OMGPPOLearner
from omg.learners.subgoal_training import SubgoalLesson, SubgoalTraining
from omg.modules.critics import ValueCritic
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.storage.files import load_tensors
from omg.types import OmgError

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout

H = 4
START = Progress(0, 0, 0)


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level", "random")


def words(pool: Path, *more: str, config: str = "ppo_omg") -> list[str]:
    learn = [f"--config={config}", f"--opponent_pool={pool}", f"--subgoal_horizon={H}"]
    learn += ["--subgoal_dim=8", "--am_hidden_dim=64", "--prior_min_accuracy=0"]
    learn += ["--critic_hidden_dims=[16]", "--mlp_hidden_dims=[16]", "--ppo_epochs=2"]
    return [*SMALL, *learn, *more, *TASK]


class Case:
    """A learner and a batch of its own play."""

    def __init__(self, pool: Path, *more: str) -> None:
        rollout = make_rollout(words(pool, *more), copies=6)
        assert isinstance(rollout.mac, MultiModuleMAC)
        self.mac = rollout.mac
        config = self.mac._config
        self.learner = OMGPPOLearner(config=config, spec=rollout.env.spec, mac=self.mac, device=CPU)
        found = [f.episodes for f in collect(rollout, 40) if len(f.episodes) >= 2]
        self.batch = max(found, key=len)
        self.played = self.mac.trajectories(self.batch)
        self.packing = self.played.packing

    @torch.no_grad()
    def lesson(self) -> SubgoalLesson:
        """What the policy learns with, and the subgoals that the critic selects."""
        training = self.learner._model
        assert isinstance(training, SubgoalTraining)
        return training.prepare(self.played, START, self.values)

    def values(self, alternatives: Alternatives) -> torch.Tensor:
        """The critic's, which selects by them."""
        self.told = self.learner._alternatives(self.played, alternatives)
        return self.told


@pytest.mark.parametrize("mode", ["optimistic", "conservative"])
@pytest.mark.parametrize("policy_model", ["mlp", "rnn"])
@pytest.mark.parametrize("critic", ["ac", "cv"])
def test_selection_equals_a_brute_force_loop_over_steps_and_candidates(
    pool: Path, mode: str, policy_model: str, critic: str
) -> None:
    case = Case(
        pool,
        f"--subgoal_mode={mode}",
        f"--policy_model={policy_model}",
        f"--critic={critic}",
        "--subgoal_posterior=mean",
    )
    model, values = case.mac.model, case.learner.values.critic
    assert isinstance(model, SubgoalModel)
    assert isinstance(values, ValueCritic)
    packing = case.packing
    with torch.no_grad():
        lesson = case.lesson()
        rows = case.mac.policy.rows.stored(case.played)
        prior, _ = model.vae.encode(model.source(rows.state, rows.seats))
        fed = case.mac.policy.inputs.packed(case.played, lesson.feature)
        inputs = values.inputs(case.played, fed, lesson.feature)
        for row, p in enumerate(packing.now.tolist()):
            b, t = int(packing.episode[p]), int(packing.time[p])
            last = int(case.batch.lengths[b]) - 1
            found = []
            for k in range(1, min(H, last - t) + 1):
                q = int(((packing.episode == b) & (packing.time == t + k)).nonzero()[0])
                # The whole play again with g_k at step t, nothing shared or cut short.
                changed = inputs.clone()
                goal = model.features(prior[q : q + 1], rows.take(torch.tensor([p])))
                changed[p, 0, -goal.shape[1] :] = goal[0]
                found.append(float(values(changed, case.played)[p, 0]))
            assert case.told[row, : len(found)].tolist() == pytest.approx(found, abs=1e-5)
            ahead, chosen = int(lesson.steps_ahead[row]), lesson.chosen[row]
            wanted = max(found) if mode == "optimistic" else min(found)
            assert found[ahead] == pytest.approx(wanted, abs=1e-6)
            assert int(packing.time[chosen]) == t + ahead + 1
            assert int(packing.episode[chosen]) == b


def test_the_policy_learns_with_the_subgoals_that_were_drawn_while_acting(pool: Path) -> None:
    case = Case(pool)
    model, packing = case.mac.model, case.packing
    assert isinstance(model, SubgoalModel)
    lesson = case.lesson()
    assert lesson.feature is not None
    feature = lesson.feature.squeeze(1)
    drawn = packing.pack(case.batch["am_subgoal"])
    acted = packing.time < packing.length - 1
    torch.testing.assert_close(feature[acted], drawn[acted])  # ppo_omg feeds the latent
    means = packing.pack(case.batch["am_mean"])
    assert not torch.allclose(drawn[acted], means[acted])
    assert (feature[~acted].abs().sum(1) > 0).all()  # the last observation has one, too


def test_an_update_trains_policy_critic_and_inference_and_leaves_the_prior_alone(
    pool: Path,
) -> None:
    case = Case(pool)
    model = case.mac.model
    assert isinstance(model, SubgoalModel)
    parts = {
        "policy": case.mac.policy.network,
        "critic": case.learner.values.critic,
        "inference": model.inference,
        "cond_rnn": model.cond_rnn,
        "prior": model.vae,
    }
    before = {
        name: torch.cat([p.detach().clone().flatten() for p in part.parameters()])
        for name, part in parts.items()
    }
    metrics = case.learner.train(case.batch, START)
    for name, part in parts.items():
        after = torch.cat([p.detach().flatten() for p in part.parameters()])
        assert torch.equal(after, before[name]) is (name == "prior"), name
    assert sum(float(metrics[f"subgoal_k{k + 1}"]) for k in range(H)) == pytest.approx(1.0)
    assert {"am_recon", "am_kl", "pg_loss", "value_loss", "am_active_dims"} <= set(metrics)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("--subgoal_epsilon_start=0.5", "Set subgoal_epsilon_start=0.0"),
        ("--subgoal_target=same", "Set subgoal_target=next"),
        ("--subgoal_value=max", "Set subgoal_value=mean"),
        ("--store_inference=False", "Set store_inference=true"),
    ],
)
def test_settings_that_have_no_meaning_here_are_refused_before_anything_is_built(
    pool: Path, tmp_path: Path, word: str, remedy: str
) -> None:
    with pytest.raises(OmgError) as refused:
        train(words(pool, word, f"--local_results_path={tmp_path}"))
    assert remedy in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_another_opponent_model_is_refused_before_anything_is_built(
    pool: Path, tmp_path: Path
) -> None:
    with pytest.raises(OmgError, match="omg_ppo_learner needs am_model=omg_am, not base_am"):
        train(words(pool, "--am_model=base_am", f"--local_results_path={tmp_path}"))
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("config", ["ppo_omg", "ppo_omg_tuned"])
def test_prior_and_agent_train_in_a_row_and_resume_exactly(
    pool: Path, tmp_path: Path, config: str
) -> None:
    def run(name: str, *more: str) -> Path:
        place = (f"--local_results_path={tmp_path}", f"--run_name={name}")
        return Path(train(words(pool, *place, *more, config=config)).folder)

    short = ("--subgoal_fixed_k=2", "--batch_size=4", "--batch_size_run=4", "--resume_interval=150")
    prior = run("prior", "--learner=am_learner", "--t_max=100", *short)
    learn = (*short, f"--init_param_path={prior}", "--test_nepisode=4")
    whole = run("whole", "--t_max=400", *learn)
    run("half", "--t_max=200", *learn)
    half = run("half", "--t_max=400", "--resume", *learn)
    for file in ("agent", "critic", "cvae", "cond_rnn"):
        one, other = (
            load_tensors(path / "models" / "last" / config / f"{file}.th") for path in (whole, half)
        )
        assert all(torch.equal(one[key], other[key]) for key in one), file
    kept = load_tensors(whole / "models" / "last" / config / "vae.th")
    made = load_tensors(prior / "models" / "last" / config / "vae.th")
    assert all(torch.equal(kept[key], made[key]) for key in made)
    logged = [r for r in read_metrics(whole / "metrics.jsonl") if "pg_loss" in r]
    assert logged
    assert all("am_loss" in record for record in logged)
