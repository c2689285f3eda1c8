"""`omg sweep`: a planned sweep carried out by Ray Tune."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from omg.config.schema import Config
from omg.integrations.ray.cluster import Connection, check_address, connected, hush, load_ray
from omg.integrations.ray.nodes import check_nodes
from omg.registry import nearest
from omg.storage.files import RunFolder
from omg.studies.process import pipeline_lock, stop_orphans
from omg.studies.steps import cpus_of
from omg.studies.sweep.marks import STATES, forgive_lost, read_mark
from omg.studies.sweep.outcome import Outcome, outcomes
from omg.studies.sweep.plan import SweepPlan, check_out
from omg.studies.sweep.space import corners
from omg.types import OmgError

TUNE = "tune"  # the folder of Tune's own state
SNAPSHOT = "5"  # seconds between two snapshots of a sweep's state
SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": SNAPSHOT,
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}


def run_sweep(
    plan: SweepPlan,
    *,
    address: str = "",
    jobs: float | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> list[Outcome]:
    """Train every run of a plan. `jobs`: cores that a local Ray may use."""
    load_ray()
    check_address(address)
    check_out(plan, resume=resume)
    cpus = cores_of(plan)
    total = check_metric(plan)
    os.environ.update(SETTINGS)
    with pipeline_lock(plan.out, "sweep"):
        stop_orphans(plan.out / "logs")
        forgive_lost(plan.out)
        try:
            with connected(address=address, cpus=jobs) as connection:
                hush()
                logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
                check_nodes(connection, plan.out)
                _check_room(plan, connection, cpus)
                plan.write()
                slots = max(1, int(connection.cpus() / cpus))
                os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(slots)
                _tune(plan, total=total, cpus=cpus, resume=resume, quiet=quiet)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(continue_words(plan)) from None
        finally:
            stop_orphans(plan.out / "logs")
    if _ended_early(plan):
        raise KeyboardInterrupt(continue_words(plan))
    shutil.rmtree(plan.out / STATES, ignore_errors=True)
    return outcomes(plan)


def _ended_early(plan: SweepPlan) -> bool:
    """Whether runs are left to do, as after Ctrl-C; those that Tune gave up count as failed."""
    names = [plan.run_name(*plan.place(index)) for index in range(plan.runs)]
    return any(not read_mark(plan.out, name).get("status") for name in names)


def continue_words(plan: SweepPlan) -> str:
    return f"Continue with: omg sweep --resume --out={plan.out}"


def cores_of(plan: SweepPlan) -> float:
    """Cores of one run: as asked, else as many as the busiest configuration takes."""
    if plan.spec.cpus:
        return plan.spec.cpus
    tried = plan.configurations or corners(plan.dimensions)
    return float(max(cpus_of(plan.config(settings)) for settings in tried))


def first_settings(plan: SweepPlan) -> dict[str, Any]:
    if plan.configurations:
        return dict(plan.configurations[0])
    return {d.key: d.values[0] for d in plan.dimensions}


def _check_room(plan: SweepPlan, connection: Connection, cpus: float) -> None:
    gpus, nodes = plan.spec.gpus, connection.nodes()
    most = max((node.cpus for node in nodes), default=0.0)
    if cpus > most:
        raise OmgError(
            f"A run of this sweep takes {cpus:g} cores, and no machine has more than {most:g}. "
            "Lower --cpus, torch_threads or n_workers."
        )
    if not any(node.cpus >= cpus and node.gpus >= gpus for node in nodes):
        there = max(node.gpus for node in nodes)
        raise OmgError(
            f"A run of this sweep takes {gpus:g} GPUs and {cpus:g} cores, and no machine has both "
            f"(GPUs of one: {there:g} at most). Lower --gpus, or leave it out."
        )


def check_metric(plan: SweepPlan) -> int:
    """Refuse a metric that no test logs: the first configuration is built, and plays one episode.
    The steps that a whole run has."""
    from omg.experiment.run import Run
    from omg.runners.rollout import run_test

    found: Config = plan.config(first_settings(plan))
    small = {"test_nepisode": 1, "quiet": True, "use_sacred": False, "use_tensorboard": False}
    config = Config.model_validate({**found.as_dict(), **small})
    folder = Path(tempfile.mkdtemp(prefix="omg-sweep-"))
    try:
        with Run(config, RunFolder(folder)) as run:
            logged = run_test(run.parts.tester, 1, round_number=0, env_steps=0).metrics()
            total = run.parts.numbers.t_max
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    metric = plan.spec.metric
    if metric not in logged:
        hint = nearest(metric, logged) or "."
        raise OmgError(
            f"--metric={metric} is not logged by the tests of these runs{hint} They log: "
            f"{', '.join(sorted(logged))}."
        )
    return total


def _can_restore(folder: Path) -> bool:
    """Whether Tune has noted any trial there; a sweep that ended before that begins again, and
    its runs go on from their own folders."""
    from ray import tune

    if not tune.Tuner.can_restore(str(folder)):
        return False
    states = sorted(folder.glob("experiment_state-*.json"))
    try:
        return bool(json.loads(states[-1].read_text(encoding="utf-8"))["trial_data"])
    except (LookupError, OSError, ValueError):
        return False


def _tune(plan: SweepPlan, *, total: int, cpus: float, resume: bool, quiet: bool) -> None:
    """Hand the plan to Tune, or let it go on with what it had."""
    from ray import tune

    from omg.integrations.ray.progress import SweepDisplay, SweepProgress
    from omg.integrations.ray.schedulers import scheduler_of
    from omg.integrations.ray.search import (
        OptunaPlannedSearch,
        PlannedSearch,
        open_study,
        population,
        trial_name,
    )
    from omg.integrations.ray.trial import RunTrial

    resources = {"cpu": cpus, **({"gpu": plan.spec.gpus} if plan.spec.gpus else {})}
    trainable = tune.with_resources(RunTrial, resources)
    folder = plan.out / TUNE
    searcher = {"optuna": OptunaPlannedSearch}.get(plan.spec.search_kind(), PlannedSearch)
    if searcher is OptunaPlannedSearch:
        open_study(plan)
    exchanged = plan.spec.scheduler == "pbt"
    if resume and _can_restore(folder):
        tuner = tune.Tuner.restore(str(folder), trainable, resume_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=population(plan) if exchanged else None,
            tune_config=tune.TuneConfig(
                metric=None,
                search_alg=None if exchanged else searcher(plan),
                scheduler=scheduler_of(plan, total),
                num_samples=1 if exchanged else plan.runs,
                reuse_actors=True,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_name,
            ),
            run_config=tune.RunConfig(
                name=TUNE,
                storage_path=str(plan.out),
                callbacks=[SweepProgress(str(plan.out), plan.spec.metric)],
                failure_config=tune.FailureConfig(max_failures=plan.spec.max_failures),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
    with SweepDisplay(plan, quiet=quiet) as display:
        again = "continued" if resume else "started"
        display.say(
            f"Sweep {again}: {plan.count} configurations, {plan.runs} runs, {cpus:g} "
            f"core{'s'[: cpus != 1]} each, into {plan.out}"
        )
        for note in plan.notes:
            display.say(note)
        tuner.fit()
