"""The live table of a sweep."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from omg.integrations.ray.progress import SweepDisplay, SweepProgress
from omg.integrations.ray.search import trial_config
from omg.studies.sweep.marks import mark_path, read_mark, write_mark
from omg.studies.sweep.plan import SweepPlan, plan_of


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    words = ["lr=grid:0.0005,0.001", "target_update_interval=grid:20,50", "mixing_embed_dim=grid:8"]
    given = {"config": "qmix", "env_config": "foraging", "seeds": "1:3"}
    return plan_of(options=given, words=words, out=str(tmp_path))


def trial(plan: SweepPlan, index: int, state: str, **result: Any) -> Any:
    number, seed = plan.place(index)
    config = trial_config(plan, plan.configurations[number], number, seed)
    return SimpleNamespace(status=state, config=config, last_result=result)


def shown(plan: SweepPlan, trials: list[Any]) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=False, markup=False)
    console.print(SweepDisplay(plan, quiet=True).table(trials))
    return text.getvalue().splitlines()


def test_the_table_fits_80_columns_and_cuts_no_names(plan: SweepPlan) -> None:
    metric = {"test_return_mean": 0.71234, "t_env": 1_000_000}
    trials = [
        trial(plan, 0, "TERMINATED", status="finished", share=1.0, **metric),
        trial(plan, 1, "TERMINATED", status="running", share=0.4, **metric),
        trial(plan, 2, "RUNNING", share=0.25, **metric),
        trial(plan, 3, "ERROR", share=0.25, **metric),
        trial(plan, 4, "PENDING"),
    ]
    lines = shown(plan, trials)
    assert max(map(len, lines)) <= 80
    title = "12 runs: 1 failed, 1 finished, 1 running, 1 stopped, 8 waiting"
    assert lines[0].startswith(title)
    rows = [line for line in lines if "-s" in line]
    assert "000-s3" in rows[0], "what runs stands first"
    assert "25%" in rows[0]
    assert "0.712" in rows[0]
    assert "1,000,000" in rows[0]
    words = {line.strip("│ ").split()[-1] for line in rows}
    assert words == {"running", "failed", "finished", "stopped", "waiting"}


def test_more_trials_than_rows_show_those_that_run(plan: SweepPlan) -> None:
    done = [trial(plan, i % 12, "TERMINATED", status="finished") for i in range(40)]
    lines = shown(plan, [*done, trial(plan, 11, "RUNNING", share=0.5)])
    assert len(lines) < 40
    assert any("running" in line and "003-s3" in line for line in lines)


def test_a_run_that_a_scheduler_stopped_is_noted(plan: SweepPlan) -> None:
    progress = SweepProgress(str(plan.out), "test_return_mean")
    stopped = trial(plan, 0, "TERMINATED", status="running", test_return_mean=0.5, t_env=100)
    progress.on_trial_complete(1, [stopped], stopped)
    assert read_mark(plan.out, "000-s1")["status"] == "stopped"
    ended = trial(plan, 1, "TERMINATED", status="finished", test_return_mean=0.5, t_env=100)
    progress.on_trial_complete(2, [ended], ended)
    assert read_mark(plan.out, "000-s2") == {}, "the run itself notes its end"


def test_a_note_that_was_written_over_is_made_again_at_the_end(plan: SweepPlan) -> None:
    progress = SweepProgress(str(plan.out), "test_return_mean")
    trials = [
        trial(plan, 0, "TERMINATED", status="running"),
        trial(plan, 1, "TERMINATED", status="running"),
        trial(plan, 2, "TERMINATED", status="running"),  # by Ctrl-C
    ]
    for one in trials[:2]:
        progress.on_trial_complete(1, trials, one)
    mark_path(plan.out, "000-s1").write_text('{"status": "", "seconds": 5.0}')
    write_mark(plan.out, "000-s2", status="finished")
    progress.on_experiment_end(trials)
    states = [read_mark(plan.out, f"000-s{seed}").get("status") for seed in (1, 2, 3)]
    assert states == ["stopped", "finished", None]
    assert read_mark(plan.out, "000-s1")["seconds"] == 5.0


def test_a_continued_sweep_may_change_the_number_of_restarts(plan: SweepPlan) -> None:
    progress, known = SweepProgress(str(plan.out), "test_return_mean"), trial(plan, 0, "PENDING")
    known.max_failures = 5
    asked = replace(plan, spec=plan.spec.model_copy(update={"max_failures": 0}))
    with SweepDisplay(asked, quiet=True):
        progress.on_step_begin(1, [known])
    assert known.max_failures == 0


def test_what_tune_stores_of_it_can_be_read_back_while_a_display_is_shown(plan: SweepPlan) -> None:
    progress = SweepProgress(str(plan.out), "test_return_mean")
    with SweepDisplay(plan, quiet=True):
        again = pickle.loads(pickle.dumps(progress))
        assert again._display() is progress._display() is not None
    assert again._display() is None
