"""`omg train --seeds=1:4`: several seeds of one configuration, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from omg.cli.train import main
from omg.experiment.output import read_metrics
from omg.studies.seeds import plan_of, split_seeds
from omg.types import OmgError

TINY = [
    *("--config=iql", "--env-config=foraging", "--t_max=60", "--test_nepisode=2"),
    *("--batch_size_run=2", "--use_sacred=False", "--use_tensorboard=False"),
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
]


def test_every_seed_is_a_run_by_the_same_words() -> None:
    plan = plan_of([*TINY, "--label=mine"], "1:2,7")
    assert [step.key for step in plan.steps] == ["s1", "s2", "s7"]
    assert plan.out == Path("results/iql-Foraging-5x5-2p-1f-v3-mine")
    for step, seed in zip(plan.steps, (1, 2, 7), strict=True):
        (words,) = step.commands
        place = [f"--local_results_path={plan.out}", f"--run_name=s{seed}"]
        assert list(words) == ["train", *TINY, "--label=mine", f"--seed={seed}", *place]
        assert step.settings["seed"] == seed
    assert len(set(plan.fingerprints().values())) == 3
    assert plan_of([*TINY, "--run_name=team"], "3").out == Path("results/team")
    assert plan_of(TINY, "3", "some/where").out == Path("some/where")


def test_seeds_without_an_environment_are_refused_before_anything_runs() -> None:
    with pytest.raises(OmgError, match="No environment is named"):
        plan_of(["--config=iql"], "1:2")


def test_options_of_all_seeds_may_stand_anywhere() -> None:
    words = split_seeds(["--jobs=2", "--config=iql", "--seeds=1:4", "with", "lr=1", "--redo"])
    assert (words.jobs, words.seeds, words.redo) == ("2", "1:4", True)
    assert words.rest == ["--config=iql", "with", "lr=1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds=4:1"], "seeds='4:1' is not possible. Expected: seeds as 1:5"),
        (["--seeds=1,1"], "seeds that are all different"),
        (["--seeds=1:2", "--seed=3"], "'--seed=3' cannot stand beside --seeds"),
        (["--seeds=1:2", "--resume"], "The same command continues what was interrupted"),
        (["--seeds=1:2", "--jobs=many"], "--jobs=many is not possible"),
        (["--seeds=1:2", "-p"], "Leave Sacred's commands and flags out"),
        (["--seeds=1:2", "--learning_rate=1"], "did you mean 'lr'?"),
        (["--jobs=2"], "omg train --seeds=1:4 --jobs=2"),
    ],
)
def test_what_does_not_go_with_seeds_is_refused_before_anything_is_written(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, *TINY]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_seeds_train_side_by_side_and_a_second_call_only_adds_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, f"--out={tmp_path / 'runs'}", "--jobs=2"]
    assert main([*words, "--seeds=1:2"]) == 0
    first = capsys.readouterr().out
    assert "Last test team return: " in first
    assert f"omg plot {tmp_path / 'runs'}/s[0-9]*" in " ".join(first.split())
    made = {seed: tmp_path / "runs" / f"s{seed}" for seed in (1, 2, 3)}
    written = (made[1] / "metrics.jsonl").read_bytes()
    assert main([*words, "--seeds=1:3"]) == 0
    second = capsys.readouterr().out
    assert [second.count(word) for word in ("skipped ", "started ")] == [2, 1]
    assert (made[1] / "metrics.jsonl").read_bytes() == written
    for seed, run in made.items():
        assert yaml.safe_load((run / "config.yaml").read_text())["seed"] == seed
        assert any("test_return_mean" in record for record in read_metrics(run / "metrics.jsonl"))
    assert main([*words, "--seeds=1:3", "--lr=0.1"]) == 2
    assert "with other settings: lr was 0.0005, now 0.1" in capsys.readouterr().err
