"""Benchmarks of teams: the plan, the table's numbers by hand, random play."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.axes import Axes

from omg.config.loader import available, load_command_line
from omg.envs.registry import make_batched
from omg.evaluation.benchmark import RANDOM, random_returns, within_reach, write_benchmark
from omg.evaluation.statistics import Interval
from omg.studies.decide import decide
from omg.studies.execute import run_pipeline
from omg.studies.plan import plan_of
from omg.studies.state import PipelineState
from omg.types import OmgError

SMALL = {
    "seeds": [1, 2],
    "random_episodes": 20,
    "settings": {
        "t_max": 300,
        "batch_size_run": 4,
        "batch_size": 4,
        "test_nepisode": 4,
        "test_interval": 100,
        "use_sacred": False,
        "use_tensorboard": False,
    },
    "tasks": [
        {
            "name": "Small field",
            "env_config": "foraging",
            "settings": {"env_args": {"key": "Foraging-5x5-2p-1f-v3"}},
        }
    ],
    "methods": [
        {"name": "IQL", "config": "iql"},
        {"name": "MAPPO", "config": "mappo", "settings": {"lr": 0.002}},
    ],
}


def written(folder: Path, **changed: object) -> str:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({"teams": {**SMALL, **changed}}))
    return str(path)


def test_every_task_method_and_seed_is_one_run_and_the_table_comes_last(tmp_path: Path) -> None:
    plan = plan_of(pipeline=written(tmp_path), out=str(tmp_path / "out"), words=["--gamma=0.9"])
    assert [step.key for step in plan.steps] == [
        *("teams/small_field/iql-s1", "teams/small_field/mappo-s1"),
        *("teams/small_field/iql-s2", "teams/small_field/mappo-s2"),
        "benchmark",
    ]
    mappo = plan.steps[3].settings
    assert (mappo["lr"], mappo["gamma"], mappo["seed"], mappo["t_max"]) == (0.002, 0.9, 2, 300)
    assert mappo["env_args"]["key"] == "Foraging-5x5-2p-1f-v3"


def test_a_table_that_was_made_by_hand_is_made_again_and_a_foreign_run_is_not(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    plan = plan_of(pipeline=written(tmp_path), out=str(out))
    out.mkdir()
    (out / "benchmark.csv").write_text("task\n")
    assert {each.action for each in decide(plan, PipelineState(plan))} == {"start"}
    plan.steps[0].output.mkdir(parents=True)
    with pytest.raises(OmgError, match="did not make it"):
        decide(plan, PipelineState(plan))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"methods": [{"name": "D3QN", "config": "d3qn"}]}, "Choose a team's algorithm"),
        ({"methods": [{"name": "IQL", "config": "iql"}] * 2}, "stands there 2 times"),
        ({"task": []}, "unknown key 'teams.task'"),
        ({"settings": {"seed": 3}}, "'seed' is set by the pipeline"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(
    changed: dict[str, object], told: str, tmp_path: Path
) -> None:
    with pytest.raises(OmgError, match=told):
        plan_of(pipeline=written(tmp_path, **changed))


def test_shipped_benchmarks_can_be_planned() -> None:
    names = [name for name in available("pipelines") if name.startswith("benchmark_")]
    assert names == ["benchmark_lbf", "benchmark_mpe", "benchmark_rware"]
    counts = {name: len(plan_of(pipeline=name).steps) for name in names}
    assert counts == {
        "benchmark_lbf": 5 * 12 * 10 + 1,
        "benchmark_mpe": 5 * 2 * 9 + 1,
        "benchmark_rware": 5 * 3 * 6 + 1,
    }


def fake_run(folder: Path, label: str, seed: int, tests: dict[int, tuple[float, float]]) -> None:
    """A run whose tests were (as it plays, greedy)."""
    folder.mkdir(parents=True)
    words = ["--config=mappo", "--env-config=foraging", f"--label={label}", f"--seed={seed}"]
    config = load_command_line([*words, "--env_args.key=Foraging-5x5-2p-1f-v3"]).config
    (folder / "config.yaml").write_text(yaml.safe_dump(config.as_dict()))
    names = ("test_return_mean", "test_greedy_return_mean")
    lines = [{"t_env": at, **dict(zip(names, pair, strict=True))} for at, pair in tests.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# The paper's tables 12, 16, 20, 24, 26 and 28 (arXiv:2006.07869v4): rate, deviations as the unit of
# rewards, network and its width, steps of epsilon or weight of the entropy, targets (below 1: soft,
# else every so many episodes).
PUBLISHED = {
    ("lbf", "IQL"): (0.0003, True, "rnn", 128, 200_000, 200),
    ("lbf", "VDN"): (0.0003, True, "rnn", 128, 200_000, 0.01),
    ("lbf", "QMIX"): (0.0003, True, "rnn", 64, 200_000, 0.01),
    ("lbf", "COMA"): (0.0001, True, "rnn", 128, None, 200),
    ("lbf", "IPPO"): (0.0003, False, "mlp", 128, 0.001, None),
    ("lbf", "MAPPO"): (0.0003, False, "mlp", 128, 0.001, None),
    ("mpe", "IQL"): (0.0005, True, "mlp", 128, 200_000, 0.01),
    ("mpe", "VDN"): (0.0005, True, "mlp", 128, 50_000, 200),
    ("mpe", "QMIX"): (0.0005, True, "rnn", 64, 200_000, 0.01),
    ("mpe", "COMA"): (0.0003, True, "rnn", 64, None, 200),
    ("mpe", "IPPO"): (0.0003, True, "rnn", 64, 0.01, None),
    ("mpe", "MAPPO"): (0.0005, True, "mlp", 64, 0.01, None),
    ("rware", "IQL"): (0.0005, True, "mlp", 64, 50_000, 0.01),
    ("rware", "VDN"): (0.0005, True, "mlp", 64, 50_000, 0.01),
    ("rware", "QMIX"): (0.0005, True, "mlp", 64, 50_000, 0.01),
    ("rware", "COMA"): (0.0005, True, "mlp", 64, None, 0.01),
    ("rware", "IPPO"): (0.0005, False, "rnn", 128, 0.001, None),
    ("rware", "MAPPO"): (0.0005, False, "mlp", 128, 0.001, None),
}


@pytest.mark.parametrize(("benchmark", "method"), PUBLISHED)
def test_benchmarks_have_the_settings_of_the_paper(benchmark: str, method: str) -> None:
    rate, unit, network, width, explores, targets = PUBLISHED[benchmark, method]
    plan = plan_of(pipeline=f"benchmark_{benchmark}", out="unused", words=[])
    label = f"--label={method}"
    words = next(step.commands[0] for step in plan.steps if label in step.commands[0])
    config = load_command_line(list(words[1:])).config
    assert (config.lr, config.gamma, config.optimizer) == (rate, 0.99, "adam")
    assert config.standardise_rewards is unit
    assert config.limit_terminates
    assert config.common_reward
    assert not config.obs_last_action
    assert config.policy_model == network
    widths = (config.rnn_hidden_dim,) if network == "rnn" else set(config.mlp_hidden_dims)
    assert set(widths) == {width}
    if method in ("IPPO", "MAPPO"):
        assert (config.critic_lr, config.entropy_coef) == (rate, explores)
        return
    soft, hard = config.target_update_tau, config.target_update_interval
    assert (soft or hard) == targets
    if explores is None:
        assert config.critic_lr == rate
    else:
        assert (config.epsilon_start, config.epsilon_finish) == (1.0, 0.05)
        assert config.epsilon_anneal_time == explores


def test_the_maximum_is_taken_where_the_mean_over_seeds_is_largest(tmp_path: Path) -> None:
    tests = [
        {0: (0.0, 0.1), 100: (0.5, 0.2), 200: (0.3, 0.3)},
        {0: (0.1, 0.1), 100: (0.7, 0.2), 200: (0.8, 0.3)},
        {0: (0.2, 0.1), 100: (0.6, 0.2), 200: (0.4, 0.3)},
    ]
    for seed, values in enumerate(tests):
        fake_run(tmp_path / f"teams/field/mappo-s{seed}", "MAPPO", seed, values)
    played, greedy, chance = write_benchmark(tmp_path, random_episodes=5)
    assert (played.tested, greedy.tested, chance.method) == ("as it plays", "greedy", RANDOM)
    # Means of the tests: 0.1, 0.6, 0.5; the seeds' averages: 0.8/3, 1.6/3, 1.2/3.
    assert (played.max_return, played.max_at) == (pytest.approx(0.6), 100)
    half = 4.3027 * 0.1 / np.sqrt(3)  # t of two degrees, deviation of 0.5, 0.6, 0.7
    assert played.max_low == pytest.approx(0.6 - half, abs=1e-3)
    assert played.max_high == pytest.approx(0.6 + half, abs=1e-3)
    assert played.average_return == pytest.approx(3.6 / 9)
    assert (greedy.max_return, greedy.max_at, greedy.steps) == (pytest.approx(0.3), 200, 200)
    assert played.last_returns == "0.3 0.8 0.4"
    with (tmp_path / "benchmark.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["MAPPO", "MAPPO", RANDOM]
    assert (tmp_path / "benchmark-field.png").stat().st_size > 1000


def test_an_interval_stays_within_what_can_be_earned() -> None:
    shares = np.array([[0.9, 1.0]])
    assert within_reach(Interval(0.95, 0.8, 1.1), shares) == Interval(0.95, 0.8, 1.0)
    assert within_reach(Interval(0.1, -0.2, 0.4), shares) == Interval(0.1, 0.0, 0.4)
    assert within_reach(Interval(-5.0, -9.0, -1.0), -8 * shares) == Interval(-5.0, -9.0, -1.0)
    assert within_reach(Interval(3.0, -1.0, 7.0), 4 * shares) == Interval(3.0, 0.0, 7.0)


def test_bands_of_pictures_stay_within_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, last in enumerate((0.1, 0.9, 1.0)):  # mean 0.67, half an interval of 1.2
        tests = {0: (0.0, 0.0), 100: (last, last)}
        fake_run(tmp_path / f"teams/field/mappo-s{seed}", "MAPPO", seed, tests)
    drawn: list[Any] = []
    monkeypatch.setattr(Axes, "fill_between", lambda _, *band, **__: drawn.append(band))
    write_benchmark(tmp_path, random_episodes=5)
    ((_, low, high),) = drawn
    assert (list(low), list(high)) == ([0.0, 0.0], [0.0, 1.0])


def test_random_play_earns_what_a_plain_loop_earns() -> None:
    words = ["--config=qmix", "--env-config=foraging", "--env_args.key=Foraging-5x5-2p-1f-v3"]
    config = load_command_line(words).config
    found = random_returns(config, 600)
    env = make_batched("foraging", config.env_args, n_copies=1)
    rng, slow = np.random.default_rng(1), []
    avail = env.reset(99).avail
    while len(slow) < 600:
        total, over = 0.0, False
        while not over:
            actions = [rng.choice(np.flatnonzero(seat)) for seat in avail[0]]
            step = env.step(np.array([actions]))
            total, avail = total + float(step.reward.sum()), step.avail
            over = bool(step.terminated[0] or step.truncated[0])
        slow.append(total)
    env.close()
    assert len(found) == 600
    spread = np.sqrt(found.var() / 600 + np.var(slow) / 600)
    assert abs(found.mean() - np.mean(slow)) < 4 * spread
    assert 0 < found.mean() < 1


@pytest.mark.long
def test_a_small_benchmark_runs_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = plan_of(pipeline=written(tmp_path, seeds=[1]), out=str(out))
    run_pipeline(plan, jobs=1)
    first = (out / "teams/small_field/iql-s1/metrics.jsonl").stat().st_mtime_ns
    more = plan_of(pipeline=written(tmp_path), out=str(out))
    run_pipeline(more, jobs=1, redo=True)
    assert (out / "teams/small_field/iql-s1/metrics.jsonl").stat().st_mtime_ns == first
    with (out / "benchmark.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["method"], r["tested"], r["seeds"]) for r in rows] == [
        ("IQL", "greedy", "2"),
        ("MAPPO", "as it plays", "2"),
        ("MAPPO", "greedy", "2"),
        (RANDOM, "as it plays", "0"),
    ]
