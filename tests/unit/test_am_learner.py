"""`am_learner`: any opponent model is trained before a policy uses it, from others' play."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omg.cli.train import train
from omg.experiment.output import read_metrics
from omg.experiment.trained import read_run
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.opponents.pool import OpponentPool
from omg.storage.files import load_tensors
from omg.types import OmgError

from .small_runs import assert_same
from .test_mixed_teams import SMALL, TASK

pytestmark = pytest.mark.long
WORDS = [*SMALL, "--am_hidden_dim=16", "--moa_min_size=8", "--subgoal_dim=4"]
WORDS += ["--prior_min_accuracy=0", "--t_max=150"]
# A model, a metric of its training, and one of its files.
MODELS = [
    ("base_am", "am_accuracy", "base_am.th"),
    ("liam_am", "am_obs_loss", "liam_am.th"),
    ("moa", "moa_loss", "player_2_to_1.pth"),
    ("omg_am", "prior_recon", "vae.th"),
]
models = pytest.mark.parametrize(("model", "metric", "file"), MODELS)


class Bench:
    """Runs in one folder, with a trained team and a pool."""

    def __init__(self, folder: Path, pool: Path) -> None:
        self.folder, self.pool = folder, pool
        self.team = self.run("--config=qmix", "--run_name=qmix")

    def run(self, *words: str) -> Path:
        given = [*WORDS, *words, f"--local_results_path={self.folder}", *TASK]
        return Path(train(given).folder)

    def pretrained(self, model: str, *, by: str) -> Path:
        """By the team's own play, or from games of the pool's players."""
        name = f"{model} of the {by}"
        if (self.folder / name).is_dir():
            return self.folder / name
        words = ["--learner=am_learner", f"--am_model={model}", f"--run_name={name}"]
        if by == "team":
            return self.run("--config=qmix", f"--checkpoint_path={self.team}", *words)
        return self.run("--config=iql_am", f"--opponent_pool={self.pool}", *words)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, scripted_pool: Callable[..., Path]) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), scripted_pool("nearest_food"))


def weights(run: Path, file: str) -> dict[str, torch.Tensor]:
    found = list((run / "models" / "last").rglob(file))
    assert len(found) == 1
    return dict(load_tensors(found[0]))


@models
@pytest.mark.parametrize("by", ["team", "pool"])
def test_a_model_is_trained_from_others_play_and_a_run_begins_with_it(
    bench: Bench, model: str, metric: str, file: str, by: str
) -> None:
    made = bench.pretrained(model, by=by)
    assert any(metric in record for record in read_metrics(made / "metrics.jsonl"))
    saved = {path.name for path in (made / "models" / "last").rglob("*.*th")}
    assert "agent.th" not in saved
    words = ["--config=iql_am", f"--am_model={model}", f"--opponent_pool={bench.pool}"]
    words += [f"--init_param_path={made}", "--t_max=1", f"--run_name=with {model} of {by}"]
    used = bench.run(*words)  # too short for an update
    before, after = weights(made, file), weights(used, file)
    assert before
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_the_team_that_plays_stays_as_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[dict[str, torch.Tensor]] = []
    run = TrainingLoop.run

    def noted(loop: TrainingLoop) -> dict[str, float]:
        found = run(loop)
        network = loop.parts.mac.networks()["agent"]
        played.append({k: v.clone() for k, v in network.state_dict().items()})
        return found

    monkeypatch.setattr(TrainingLoop, "run", noted)
    words = ["--config=qmix", f"--checkpoint_path={bench.team}", "--learner=am_learner"]
    bench.run(*words, "--am_model=base_am", "--run_name=noted")
    trained = weights(bench.team, "agent.th")
    assert all(torch.equal(trained[key], played[0][key]) for key in trained)


def test_a_frozen_team_plays_without_exploring(bench: Bench) -> None:
    made = bench.pretrained("base_am", by="team")
    found = [r["epsilon"] for r in read_metrics(made / "metrics.jsonl") if "epsilon" in r]
    assert set(found) == {0.0}


@pytest.mark.parametrize("model", ["liam_am", "moa"])
def test_pre_training_goes_on_exactly_after_a_stop(
    bench: Bench, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--config=qmix", f"--checkpoint_path={bench.team}", "--learner=am_learner"]
    words += [f"--am_model={model}", f"--run_name=stopped {model}"]
    step = TrainingLoop._step

    def stop(loop: TrainingLoop) -> None:
        step(loop)
        loop.stop.requested = loop.counters.env_steps >= 80

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            bench.run(*words)
    resumed = Path(train([f"--resume={bench.folder / f'stopped {model}'}"]).folder)
    assert_same(bench.pretrained(model, by="team"), resumed)


def test_a_team_must_be_given(bench: Bench) -> None:
    with pytest.raises(OmgError, match="checkpoint_path"):
        bench.run("--config=qmix", "--learner=am_learner", "--am_model=liam_am")


@pytest.mark.parametrize("model", ["none_am", "control_am", "oracle_am"])
def test_a_model_that_learns_nothing_is_refused(bench: Bench, model: str) -> None:
    with pytest.raises(OmgError, match="nothing to learn"):
        bench.run("--config=iql_am", "--learner=am_learner", f"--am_model={model}")


def test_a_folder_without_the_model_is_refused(bench: Bench) -> None:
    other = bench.pretrained("base_am", by="team")
    words = ["--config=iql_am", "--am_model=liam_am", f"--opponent_pool={bench.pool}"]
    with pytest.raises(OmgError, match="holds no opponent model"):
        bench.run(*words, f"--init_param_path={other}", "--run_name=no")


def test_a_model_of_another_width_is_refused(bench: Bench) -> None:
    other = bench.pretrained("base_am", by="team")
    words = ["--config=iql_am", "--am_hidden_dim=32", f"--opponent_pool={bench.pool}"]
    with pytest.raises(OmgError, match="am_hidden_dim=16 there, 32 here"):
        bench.run(*words, f"--init_param_path={other}", "--run_name=no")


def test_a_pre_trained_model_is_no_agent(bench: Bench, tmp_path: Path) -> None:
    made = bench.pretrained("base_am", by="pool")
    with pytest.raises(OmgError, match="am_model=base_am"):
        read_run(made)
    with pytest.raises(OmgError, match="no agent"):
        OpponentPool.create(tmp_path / "pool").add_run(made)
