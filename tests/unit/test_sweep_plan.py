"""From a command line or a file to the runs of a sweep; what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.config.arguments import parse_arguments
from omg.config.loader import available, load
from omg.studies.sweep.plan import SweepPlan, check_out, plan_of, saved_plan
from omg.studies.sweep.spec import KIND
from omg.types import OmgError

QMIX = {"config": "qmix", "env_config": "foraging"}
HUNDRED = ",".join(map(str, range(1, 101)))
LARGE = ("batch_size", "buffer_size", "t_max", "test_nepisode", "test_interval")
LARGE += ("runner_log_interval", "log_interval")


def plan(words: Sequence[str], out: str = "out", **options: Any) -> SweepPlan:
    return plan_of(options={**QMIX, **options}, words=words, out=out)


def test_every_combination_of_a_grid_is_trained_with_every_seed() -> None:
    found = plan(["lr=grid:0.0005,0.001", "mixing_embed_dim=grid:16,32"], seeds="1:3")
    assert (found.count, found.runs) == (4, 12)
    places = [found.place(index) for index in range(found.runs)]
    assert places == [(number, seed) for number in range(4) for seed in (1, 2, 3)]
    assert found.configurations[1] == {"lr": 0.0005, "mixing_embed_dim": 32}


def test_samples_are_drawn_for_every_point_of_a_grid() -> None:
    words = ["lr=grid:0.0005,0.001", "gamma=uniform:0.9,0.99"]
    found = plan(words, samples=3, search="random")
    assert found.count == 6
    gammas = [one["gamma"] for one in found.configurations]
    assert gammas[0::2] == gammas[1::2]
    assert len(set(gammas)) == 3
    assert plan(words, samples=3, search="random").configurations == found.configurations
    other = plan(words, samples=3, search="random", draw_seed=1)
    assert other.configurations != found.configurations


def test_samples_beyond_the_different_configurations_are_not_made_up() -> None:
    found = plan(["lr=grid:0.0005,0.001", "gamma=choice:0.9,0.95"], samples=20)
    assert found.count == 4
    assert found.notes == ("There are only 4 different configurations, not 40.",)


def test_draws_from_lists_with_too_many_combinations_to_list_are_made_at_once() -> None:
    found = plan([f"{key}=choice:{HUNDRED}" for key in LARGE[2:]], samples=5)
    assert len({tuple(one.values()) for one in found.configurations}) == found.count == 5


@pytest.mark.long
def test_a_zero_on_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "config: qmix\nenv_config: foraging\nspace: {lr: 'uniform:0.1,0.2'}\ndraw_seed: 4\n"
        "samples: 2\n"
    )

    def printed(*words: str) -> str:
        given = ["sweep", f"--space={file}", "--dry-run", *words]
        return CliRunner().invoke(app, given, catch_exceptions=False).stdout

    assert printed("--draw-seed=4") == printed()
    assert len({printed(), printed("--draw-seed=0"), printed("--samples=0")}) == 3


def test_a_sweep_may_ask_for_no_restarts() -> None:
    assert plan(["lr=grid:0.1"], max_failures=0).spec.max_failures == 0


def test_the_command_of_a_run_has_exactly_its_settings() -> None:
    found = plan(["lr=grid:0.001", "env_args.key=grid:Foraging-5x5-2p-1f-v3", "--t_max=500"])
    words = found.command(found.configurations[0], seed=7).split()[2:]
    config = load(parse_arguments(words)).config
    assert (config.lr, config.t_max, config.seed) == (0.001, 500, 7)
    assert config.env_args["key"] == "Foraging-5x5-2p-1f-v3"


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ([], {}, "nothing to sweep over"),
        (["lrr=grid:1,2"], {}, "Unknown key 'lrr' in the sweep, did you mean 'lr'"),
        (["--lrr=1", "lr=grid:0.1"], {}, "Unknown key 'lrr' in the sweep, did you mean 'lr'"),
        (["lr=grid:0.001,-1"], {}, "lr=-1 .* not possible"),
        (["mixing_embed_dim=choice:16,x"], {}, "mixing_embed_dim='x' .* whole number"),
        (["lr=grid:0.1", "--lr=0.2"], {}, "'lr' has one value and a search space"),
        (["seed=grid:1,2"], {}, "'seed' is set by the sweep. Give --seeds"),
        (["lr=grid:0.1", "--run_name=x"], {}, "'run_name' is set by the sweep"),
        (["lr=uniform:0.1,0.2"], {"search": "grid"}, "cannot try every value of lr=uniform"),
        (["lr=grid:0.1,0.2"], {"search": "grid", "samples": 3}, "--samples=3 has no effect"),
        (["lr=grid:0.1"], {"seeds": "5:1"}, "seeds as 1:5"),
        (["lr=grid:0.1"], {"seeds": "1,1"}, "all different"),
        (["lr=grid:0.1"], {"search": "annealing"}, "search='annealing' is not possible"),
        (["lr=grid:0.1"], {"scheduler": "hyperband"}, "scheduler='hyperband' is not possible"),
        (["lr=grid:0.1"], {"mode": "best"}, "mode='best' is not possible"),
        (["mixing_embed_dim=grid:8,16"], {"scheduler": "pbt"}, "pbt cannot change mixing_embed"),
        (["lr=uniform:0.1,0.2"], {"scheduler": "pbt", "samples": 2}, "population of 4"),
        (["lr=uniform:0.1,0.2"], {"scheduler": "pbt", "search": "optuna"}, "pbt changes"),
        (["lr=uniform:0.1,0.2"], {"scheduler": "pbt", "perturb": 500}, "no state to hand on every"),
        (["lr=loguniform:0.1,0.2", "gamma=uniform:0.5,2"], {"search": "optuna"}, "gamma=2"),
        (["lr=grid:0.1,0.2"], {"scheduler": "pbt", "search": "grid"}, "leave --search=grid out"),
        (["lr=grid:0.1"], {"grace": 100}, "--grace has no effect without --scheduler=asha"),
        (["lr=grid:0.1"], {"reduction": 2, "scheduler": "pbt"}, "--reduction has no effect"),
        (["lr=grid:0.1"], {"perturb": 9, "scheduler": "asha"}, "--perturb has no effect without"),
        (["lr=grid:0.1"], {"reduction": 0, "scheduler": "asha"}, "reduction=0 is not possible"),
        (["lr=grid:0.1"], {"draw_seed": 4}, "--draw-seed=4 has no effect with --search=grid"),
        ([f"{key}=grid:{HUNDRED}" for key in LARGE], {}, "100,000,000,000,000 configurations"),
        (["lr=uniform:0.1,0.2"], {"samples": 20_000}, "20,000 configurations, and 10,000 are"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_a_sentence(
    words: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(OmgError, match=said):
        plan(words, **options)


def test_a_file_holds_what_the_command_line_does_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "config: qmix\nenv_config: foraging\nseeds: 1:2\nsettings: {t_max: 500, gamma: 0.9}\n"
        "space:\n  lr: {grid: [0.001, 0.002]}\n  grad_norm_clip: choice:5,10\n"
        "search: grid\n"
    )
    assert plan_of(options={}, space=str(file)).seeds == (1, 2), "YAML itself reads 1:2 as 62"
    found = plan_of(options={"seeds": "4"}, words=["--gamma=0.8", "lr=grid:0.003"], space=str(file))
    assert found.seeds == (4,)
    assert found.spec.settings == {"t_max": 500, "gamma": 0.8}
    assert [one["lr"] for one in found.configurations] == [0.003, 0.003]
    assert found.out.name == "mine"
    file.write_text("spaces: {}\n")
    with pytest.raises(OmgError, match="unknown key 'spaces', did you mean 'space'"):
        plan_of(options={}, space=str(file))
    with pytest.raises(OmgError, match="There is no sweep called 'nothing'"):
        plan_of(options={}, space="nothing")


@pytest.mark.parametrize("name", available(KIND))
def test_every_shipped_sweep_is_one(name: str) -> None:
    assert plan_of(options={}, space=name).runs > 0


def test_the_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    mine = plan(["lr=grid:0.1"], out=str(tmp_path / "a"))
    check_out(mine, resume=False)
    with pytest.raises(OmgError, match="has no sweep to continue"):
        check_out(mine, resume=True)
    mine.write()
    check_out(mine, resume=True)
    with pytest.raises(OmgError, match=r"holds this sweep already\. Continue it with --resume"):
        check_out(mine, resume=False)
    with pytest.raises(OmgError, match="holds another sweep: space differ"):
        check_out(plan(["lr=grid:0.2"], out=str(tmp_path / "a")), resume=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(OmgError, match="holds something else"):
        check_out(plan(["lr=grid:0.1"], out=str(tmp_path / "b")), resume=False)


def test_a_sweep_reads_its_own_file_back(tmp_path: Path) -> None:
    words = ["lr=loguniform:0.0001,0.01", "mixer=grid:qmix", "--t_max=100"]
    mine = plan(words, out=str(tmp_path), seeds="2:3", samples=4)
    mine.write()
    assert saved_plan(tmp_path) == mine
    assert saved_plan(tmp_path, {"cpus": 2}).spec.cpus == 2
    check_out(saved_plan(tmp_path, {"cpus": 2}), resume=True)
