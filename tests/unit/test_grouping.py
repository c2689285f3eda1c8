"""Which runs are seeds of one method, and what a metric can be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.evaluation.curves import Groups, band, group_runs
from omg.evaluation.grouping import differing, distinguish
from omg.evaluation.metric_bounds import bounds
from omg.experiment.series import read_curve
from omg.types import OmgError
from tests.unit.report_data import config_of, write_run


def run(folder: Path, name: str, seed: int, value: float = 0.5, **more: Any) -> Path:
    record = {"test_return_mean": 2 * value, "test_own_return_mean": value}
    records = [{"t_env": t, **record} for t in (0, 100)]
    return write_run(folder / name, config_of("D3QN", seed, label="", **more), records)


def names(groups: Groups) -> dict[str, list[str]]:
    return {name: [path.name for path in runs] for name, runs in groups.runs.items()}


TASK = "iql_am Foraging-8x8-2p-3f-v3"


def test_runs_that_differ_in_the_seed_only_share_a_line(tmp_path: Path) -> None:
    runs = [run(tmp_path, f"s{i}", i, run_name=f"s{i}", save_model=bool(i % 2)) for i in (1, 2)]
    assert names(group_runs(runs)) == {TASK: ["s1", "s2"]}


def test_runs_with_a_prior_for_each_seed_are_seeds_of_one_method() -> None:
    """priors/tuned-s1 for seed 1 and priors/tuned-s2 for seed 2; any other prior is another one."""
    configs = [config_of("D3QN", s, init_param_path=f"priors/tuned-s{s}") for s in (1, 2, 12)]
    assert differing(configs) == []
    swapped = [config_of("D3QN", s, init_param_path=f"priors/tuned-s{3 - s}") for s in (1, 2)]
    assert differing(swapped) == ["init_param_path"]
    other = [config_of("D3QN", s, init_param_path=f"priors/p{s}-s{s}") for s in (1, 2)]
    assert differing(other) == ["init_param_path"]


@pytest.mark.parametrize(
    ("key", "one", "other", "shown"),
    [
        ("lr", 0.001, 0.01, ("lr=0.001", "lr=0.01")),
        ("opponent_pool", "/a/pool", "/b/pool", ("opponent_pool=/a/pool", "opponent_pool=/b/pool")),
        ("t_max", 10, 20, ("t_max=10", "t_max=20")),
    ],
)
def test_what_may_change_a_result_is_named(
    tmp_path: Path, key: str, one: Any, other: Any, shown: tuple[str, str]
) -> None:
    runs = [run(tmp_path, "a", 1, **{key: one}), run(tmp_path, "b", 2, **{key: other})]
    found = names(group_runs(runs))
    assert found == {f"{TASK}, {shown[0]}": ["a"], f"{TASK}, {shown[1]}": ["b"]}


def test_settings_of_the_environment_count(tmp_path: Path) -> None:
    args = {"key": "Foraging-8x8-2p-3f-v3"}
    runs = [
        run(tmp_path, "a", 1, env_args=args),
        run(tmp_path, "b", 2, env_args=args | {"max_episode_steps": 20}),
    ]
    assert names(group_runs(runs)) == {
        f"{TASK}, env_args.max_episode_steps=–": ["a"],
        f"{TASK}, env_args.max_episode_steps=20": ["b"],
    }


def test_a_key_that_an_older_run_lacks_does_not_split_it(tmp_path: Path) -> None:
    new = config_of("D3QN", 1)
    old = {key: value for key, value in new.items() if key != "am_history"}
    assert differing([new, old]) == []
    assert differing([new, old | {"lr": 9}]) == ["lr"]


def test_many_differences_are_counted_and_names_stay_apart() -> None:
    base = config_of("D3QN", 1)
    keys = ("lr", "gamma", "batch_size", "buffer_size", "test_nepisode")
    configs = [base, base | dict.fromkeys(keys, 1), base | dict.fromkeys(keys, 1) | {keys[-1]: 2}]
    found = distinguish(["A"] * 3, configs)
    assert len(set(found)) == 3
    assert found[1].endswith(", 2 more")
    assert found[2] == f"{found[1]} (2)"


def test_a_repeated_seed_is_refused(tmp_path: Path) -> None:
    runs = [run(tmp_path, "a", 1), run(tmp_path, "b", 1)]
    with pytest.raises(OmgError, match=r"a and .*b are both .* with seed 1\. Leave one out"):
        group_runs(runs)


def test_evaluations_are_skipped_with_a_remark(tmp_path: Path) -> None:
    trained, tested = run(tmp_path, "a", 1), run(tmp_path, "b", 1, evaluate=True)
    groups = group_runs([trained, tested])
    assert names(groups) == {TASK: ["a"]}
    assert groups.notes == ("b is an evaluation of another run and is left out.",)
    with pytest.raises(OmgError, match="Give the folder of a run that trained"):
        group_runs([tested])


def test_plot_draws_the_own_return_and_says_what_it_left_out(tmp_path: Path) -> None:
    runs = [run(tmp_path, "a", 1), run(tmp_path, "b", 1, evaluate=True)]
    assert group_runs(runs).metric() == "test_own_return_mean"
    out = tmp_path / "curve.svg"
    result = CliRunner().invoke(app, ["plot", *map(str, runs), f"--out={out}"])
    assert result.exit_code == 0, result.output
    assert "b is an evaluation of another run and is left out." in result.output
    assert out.stat().st_size > 1000


def test_a_band_is_the_t_interval_from_three_seeds_on(tmp_path: Path) -> None:
    runs = [run(tmp_path, f"s{i}", i, value=float(i)) for i in (1, 2, 3)]
    curves = [read_curve(path, "test_own_return_mean") for path in runs]
    _, mean, spread = band(curves)
    assert mean == pytest.approx([2.0, 2.0])
    assert spread == pytest.approx([4.30265 / math.sqrt(3)] * 2, rel=1e-4)
    assert all(math.isnan(x) for x in band(curves[:2])[2])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("test_win_rate_mean", (0, 1)),
        ("test_food_collected_mean", (0, 1)),
        ("hit_ratio", (0, 1)),
        ("permuted_ep_length", (0, math.inf)),
        ("test_ep_length_mean", (0, math.inf)),
        ("own_return", (-math.inf, math.inf)),
        ("test_return_mean", (-math.inf, math.inf)),
        ("pg_loss", (-math.inf, math.inf)),
    ],
)
def test_a_metric_can_be_what_it_measures(metric: str, expected: tuple[float, float]) -> None:
    assert bounds(metric) == expected


def test_folders_that_are_no_runs_are_left_out_with_a_remark(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / f"run-{seed}").mkdir()
        (tmp_path / f"run-{seed}" / "config.yaml").write_text(f"name: iql\nseed: {seed}\n")
    (tmp_path / "sacred").mkdir()
    (tmp_path / "curve.png").write_text("")
    groups = group_runs(sorted(tmp_path.iterdir()))
    assert [len(runs) for runs in groups.runs.values()] == [2]
    said = [f"{tmp_path / name} is no run" for name in ("curve.png", "sacred")]
    assert [note.partition(" (")[0] for note in groups.notes] == said
    with pytest.raises(OmgError, match="sacred is no run"):
        group_runs([tmp_path / "sacred", tmp_path / "curve.png"])
