"""`lr_finish`: learning rates that fall in a straight line to the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from omg.experiment.learning import Learning
from omg.learners.base import Optimisers, load_optimisers, set_rates, state_of

from .small_runs import STEPS, Runs, assert_same, saved


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def rates(optimisers: Optimisers) -> list[float]:
    each = optimisers.values() if isinstance(optimisers, Mapping) else [optimisers]
    return [group["lr"] for optimiser in each for group in optimiser.param_groups]


def watched(runs: Runs, name: str, *words: str) -> list[tuple[int, list[float]]]:
    """The step and the rates of every update of a run."""
    seen: list[tuple[int, list[float]]] = []
    update = Learning._update

    def watch(learning, batch, counters):  # type: ignore[no-untyped-def]
        found = update(learning, batch, counters)
        seen.append((counters.env_steps, rates(learning.learner.optimisers())))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "_update", watch)
        runs.run(name, *words)
    return seen


@pytest.mark.parametrize("name", ["qmix", "d3qn_liam", "ippo", "coma"])
def test_every_rate_falls_in_a_straight_line_to_its_share_at_the_end(runs: Runs, name: str) -> None:
    start = watched(runs, name, "--run_name=steady")[0][1]
    seen = watched(runs, name, "--run_name=falling", "--lr_finish=0.2")
    assert len(seen) > 2
    for steps, found in seen:
        share = 1 - 0.8 * min(1.0, steps / STEPS)
        assert found == pytest.approx([share * rate for rate in start])
    assert seen[-1][1][0] < seen[0][1][0]


def test_rates_stay_unless_told(runs: Runs) -> None:
    seen = watched(runs, "d3qn_liam")
    assert all(found == seen[0][1] for _, found in seen)


@pytest.mark.parametrize("name", ["d3qn_liam", "qmix"])
def test_a_resumed_run_has_the_rates_of_one_that_was_never_stopped(runs: Runs, name: str) -> None:
    whole = runs.run(name, "--run_name=whole", "--lr_finish=0.1")
    resumed = runs.stopped_and_resumed(name, "--lr_finish=0.1")
    assert_same(whole, resumed)
    steady = runs.run(name, "--run_name=steady")
    mine, other = saved(whole), saved(steady)
    assert any(not torch.equal(mine[key], other[key]) for key in mine)


def test_a_loaded_state_brings_no_rate_along() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    first, second = (torch.optim.Adam([weight], lr=lr) for lr in (0.1, 0.4))
    set_rates(first, 0.5)
    load_optimisers(second, state_of(first))
    set_rates(second, 0.5)
    assert rates(first) == [0.05]
    assert rates(second) == [0.2]
