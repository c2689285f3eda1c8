"""What stands around the measurements of `benchmarks/`; nothing is measured here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks import __main__ as command
from benchmarks import ours, peers, products, scale
from benchmarks import profile as bench_profile
from benchmarks.against import CASES
from benchmarks.curves import AXES, CURVES, Curve
from benchmarks.entries import BENCHMARKS, Benchmark, compare
from benchmarks.floors import complaint, floor_of, read_floors, record_floors
from benchmarks.report import markdown_table, merge_results, plain_table
from benchmarks.training import config_of
from omg.modules.agents.networks import RNNAgent
from omg.modules.mixers import QMixer

FAST = Benchmark(what="ours vs theirs", unit="steps/s", wanted=4, run=dict)
SMALL = Benchmark(what="bytes vs theirs", unit="bytes", wanted=0.5, larger=False, run=dict)
SHOWN = Benchmark(what="beside a number from elsewhere", unit="steps/s", checked=False, run=dict)
LEVELS = {"fast": {"1": 2.8}, "small": {"1": 0.6}}


def result(name: str, ratio: float, threads: int = 1) -> dict[str, Any]:
    return {"name": name, "threads": threads, "ours": 10.0, "reference": 5.0, "ratio": ratio}


def test_every_checked_ratio_has_a_floor_and_every_floor_a_ratio() -> None:
    wanted = {
        name: {str(threads) for threads in benchmark.threads}
        for name, benchmark in BENCHMARKS.items()
        if benchmark.checked
    }
    assert {name: set(by) for name, by in read_floors().items()} == wanted


def test_a_ratio_that_falls_below_its_floor_is_named_with_the_floor_and_what_was_found() -> None:
    assert complaint("fast", FAST, result("fast", 2.8), LEVELS) is None
    sentence = complaint("fast", FAST, result("fast", 2.71), LEVELS)
    assert sentence is not None
    assert all(part in sentence for part in ("fast", "1 threads", "2.71", "below", "2.8"))


def test_where_smaller_is_better_a_ratio_must_not_rise() -> None:
    assert complaint("small", SMALL, result("small", 0.1), LEVELS) is None
    sentence = complaint("small", SMALL, result("small", 0.61), LEVELS)
    assert sentence is not None
    assert "above its ceiling 0.6" in sentence


def test_a_missing_floor_is_a_complaint_and_orientation_is_never_checked() -> None:
    assert "no floor" in str(complaint("fast", FAST, result("fast", 99.0, threads=2), LEVELS))
    assert complaint("shown", SHOWN, {"name": "shown", "threads": 1, "ours": 1.0}, LEVELS) is None


def test_floors_leave_room_on_the_worse_side_and_unmeasured_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "floors.json"
    path.write_text(json.dumps({"small": {"1": 0.9, "2": 0.8}}), encoding="utf-8")
    known = {"fast": FAST, "small": SMALL, "shown": SHOWN}
    found = [result("fast", 10.0), result("small", 0.35), result("shown", 3.0)]
    record_floors(known, found, path)
    assert read_floors(path) == {"fast": {"1": 7.0}, "small": {"1": 0.5, "2": 0.8}}
    assert floor_of(FAST, 10.0) < 10.0 < floor_of(SMALL, 10.0)


def test_a_goal_in_bytes_that_is_reached_is_the_ceiling() -> None:
    counted = replace(SMALL, slack=0.9)
    assert floor_of(counted, 0.47) == 0.5
    assert floor_of(counted, 0.6) == pytest.approx(0.667)


def test_a_checked_ratio_that_was_not_measured_is_a_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "BENCHMARKS", {"fast": FAST, "shown": SHOWN})
    assert command.main(["--from-results", "--check", "fast"]) == 1
    assert command.main(["--from-results", "--check", "shown"]) == 0


@pytest.mark.parametrize(("entry", "best"), [(FAST, 3.0), (SMALL, 2.0)])
def test_the_better_of_two_tries_counts(entry: Benchmark, best: float) -> None:
    for pair in ((2.0, 3.0), (3.0, 2.0)):
        one, other = (result("x", ratio) for ratio in pair)
        assert command.better(entry, one, other)["ratio"] == best


def test_a_missed_floor_is_measured_again_and_a_held_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ratios = iter([2.0, 3.5, 5.0])
    again = Benchmark(
        what="", unit="", run=lambda: {"ours": 1.0, "reference": 1.0, "ratio": next(ratios)}
    )
    monkeypatch.setattr(command, "BENCHMARKS", {"fast": again})
    assert [r["ratio"] for r in command.results_of(["fast"], [], LEVELS)] == [3.5]
    assert [r["ratio"] for r in command.results_of(["fast"], [], LEVELS)] == [5.0]


@pytest.mark.parametrize(("ratio", "code"), [(3.0, 0), (2.0, 1)])
def test_the_check_fails_with_exit_code_1_when_a_floor_is_missed(
    ratio: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    merge_results(tmp_path / "results.json", "results", [result("fast", ratio)])
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "BENCHMARKS", {"fast": FAST})
    monkeypatch.setattr(command, "read_floors", lambda: LEVELS)
    assert command.main(["--from-results", "--check"]) == code
    assert command.main(["--from-results"]) == 0
    assert ("below its floor 2.8" in capsys.readouterr().err) == bool(code)


def test_a_new_result_replaces_its_predecessor_and_other_sections_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_results(path, "profile", [1])
    merge_results(path, "results", [2])
    merge_results(path, "results", [3])
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert (kept["profile"], kept["results"]) == ([1], [3])
    old, new = result("gru", 3.0, 2), result("gru", 4.0, 2)
    other = result("gru", 1.0, 1)
    assert sorted(r["ratio"] for r in command._merged([old, other], [new])) == [1.0, 4.0]


def test_a_row_has_a_cell_for_every_heading_with_or_without_a_reference() -> None:
    whole = {**result("fast", 2.0), "lowest": 1.5, "highest": 2.5}
    assert command.row(whole, FAST)[3:] == ["10.00", "5.00", "2.00x", "1.50-2.50", "≥ 4x"]
    alone = {"name": "shown", "threads": 1, "ours": 12345.6}
    row = command.row(alone, SHOWN)
    assert row[3:] == ["12,346", "-", "-", "-", "-"]
    assert len(row) == len(command.HEADER)


def test_tables_align_in_text_and_are_tables_in_markdown() -> None:
    header, rows = ["what", "n"], [["a", "1"], ["longer", "22"]]
    assert plain_table(header, rows).splitlines() == ["what     n", "a        1", "longer  22"]
    assert markdown_table(header, rows).splitlines()[1:3] == ["| --- | ---: |", "| a | 1 |"]


def test_a_comparison_reports_the_median_ratio_and_its_range() -> None:
    mine, theirs = iter([2.0, 9.0, 4.0]), iter([1.0, 1.0, 1.0])
    found = compare(lambda: next(mine), lambda: next(theirs), rounds=3)
    assert (found["ratio"], found["lowest"], found["highest"]) == (4.0, 2.0, 9.0)


def test_the_products_of_an_update_use_every_weight_of_the_networks() -> None:
    spec, config = ours.foraging_spec(), ours.foraging_config()
    seen = spec.obs_dim + spec.n_actions + spec.n_agents
    agent = RNNAgent(input_dim=seen, n_actions=spec.n_actions, hidden_dim=config.rnn_hidden_dim)
    mixer = QMixer(
        n_agents=spec.n_agents,
        state_dim=spec.state_dim,
        embed_dim=config.mixing_embed_dim,
        hypernet_layers=config.hypernet_layers,
        hypernet_embed=config.hypernet_embed,
    )
    weights = [p for network in (agent, mixer) for p in network.parameters() if p.ndim == 2]
    layers = products.layers(config, spec)
    assert sorted(layer.inputs * layer.outputs for layer in layers) == sorted(
        weight.numel() for weight in weights
    )
    forward = sum(layer.rows * layer.inputs * layer.outputs * layer.times for layer in layers)
    without = sum(layer.rows * layer.inputs * layer.outputs for layer in layers if layer.first)
    every = sum(n * k * m for n, k, m in products.shapes(config, spec))
    assert every == 4 * forward - without  # online, target, and two for the backward pass


def test_the_exponent_is_the_slope_of_the_upper_half() -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    assert scale.exponent(sizes, [100, 100, 100, 8**2, 16**2, 32**2]) == pytest.approx(2.0)
    assert scale.exponent(sizes, [7.0] * 6) == pytest.approx(0.0)


def test_growth_faster_than_linear_is_explained_or_said_not_to_be() -> None:
    sizes = (1, 2, 4, 8)
    unexplained = Curve("copies", "squares", sizes, lambda size: dict)
    linear = Curve("copies", "lines", sizes, lambda size: dict)
    squares = [scale.Point("copies", "squares", n, float(n * n), n) for n in sizes]
    lines = [scale.Point("copies", "lines", n, float(n), n) for n in sizes]
    assert scale.summary(unexplained, squares)[-1] == "yes"
    assert scale.reasons([(unexplained, squares), (linear, lines)]) == [
        "squares (against copies of the game): NOT EXPLAINED."
    ]


def test_every_quantity_has_curves_and_an_axis() -> None:
    assert {curve.quantity for curve in CURVES} == set(AXES)
    assert (CURVES[0].sizes[0], CURVES[0].sizes[-1]) == (1, 4096)


def test_backward_operations_count_for_the_part_of_their_forward_ones() -> None:
    mixer = QMixer(n_agents=2, state_dim=4, embed_dim=8)
    values, state = torch.randn(512, 2, requires_grad=True), torch.randn(512, 4)
    with (
        bench_profile.labelled_classes({QMixer: bench_profile.MIXER}),
        profile(activities=[ProfilerActivity.CPU]) as found,
        record_function(bench_profile.UPDATE),
    ):
        mixed = mixer(values, state)
        mixed.sum().backward()
    shares = bench_profile.parts(found.events())
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[bench_profile.PRODUCTS] == 0.0  # all of them were the mixer's, backward too
    assert shares[bench_profile.MIXER] > 0.0
    assert "labelled" not in repr(QMixer.forward)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("aten::addmm", bench_profile.PRODUCTS),
        ("aten::index_select", bench_profile.INDEXING),
        ("aten::cat", bench_profile.INDEXING),
        ("aten::_foreach_addcdiv_", bench_profile.OPTIMISER),
        ("Optimizer.step#Adam.step", bench_profile.OPTIMISER),
        ("_GRUFunctionBackward", bench_profile.CORE),
        ("aten::clamp_min", bench_profile.ELEMENTWISE),
        ("aten::empty", bench_profile.REST),
        ("AccumulateGrad", bench_profile.REST),
    ],
)
def test_an_operation_outside_of_a_named_part_counts_by_its_name(name: str, part: str) -> None:
    assert bench_profile.part_of(name) == part


def test_peers_are_asked_for_by_name_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["qmix_foraging"], ["ippo_spread", "--jaxmarl", "somewhere"]):
        with pytest.raises(SystemExit):
            peers._parsed(words)
        assert "must be said" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        peers._parsed(["chess"])
    assert "no case called chess" in capsys.readouterr().err
    given = peers._parsed(["--epymarl", "a", "--epymarl-python", "b", "--cores", "0,1"])
    assert (given.cases, given.cores) == (["qmix_foraging"], [0, 1])


def test_peers_have_the_sizes_of_our_side() -> None:
    for name in ("qmix_spread", "ippo_spread"):
        config = config_of(CASES[peers.COMPARISONS[name].case][1])
        theirs = peers.QMIX if name == "qmix_spread" else peers.IPPO
        assert config.batch_size_run == theirs["NUM_ENVS"]
        hidden = theirs["HIDDEN_SIZE" if name == "qmix_spread" else "GRU_HIDDEN_DIM"]
        assert config.rnn_hidden_dim == hidden
    assert config_of(CASES["qmix_spread"][1]).batch_size == peers.QMIX["BUFFER_BATCH_SIZE"]
    assert config_of(CASES["qmix_spread"][1]).mixing_embed_dim == peers.QMIX["MIXER_EMBEDDING_DIM"]
    assert config_of(CASES["ippo_spread"][1]).ppo_epochs == peers.IPPO["UPDATE_EPOCHS"]
    assert config_of(CASES["ippo_spread"][1]).ppo_minibatches == peers.IPPO["NUM_MINIBATCHES"]
