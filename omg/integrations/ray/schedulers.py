"""Tune's schedulers for our runs: steps of the environment are their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining

from omg.experiment.output import read_metrics
from omg.experiment.series import curves_of
from omg.studies.sweep.plan import SweepPlan
from omg.studies.sweep.space import Dimension

TIME = "t_env"
IDENTITY = ("index", "name", "place")


def scheduler_of(plan: SweepPlan, total: int) -> Any:
    """The scheduler that a sweep asks for; `total`: steps of a whole run. None: Tune's own, which
    lets every run go to its end."""
    spec = plan.spec
    common = {"time_attr": TIME, "metric": spec.metric, "mode": spec.mode}
    if spec.scheduler == "asha":
        grace = min(spec.grace or max(1, total // 10), total)
        # Twice the steps: the end of a run is for the run to find.
        return SweepAsha(
            **common, max_t=2 * total, grace_period=grace, reduction_factor=spec.reduction
        )
    if spec.scheduler == "pbt":
        return Population(plan, interval=spec.perturb or max(1, total // 10), **common)
    return None


class SweepAsha(AsyncHyperBandScheduler):
    """ASHA that remembers runs which ended before the sweep was restored: Tune does not keep what
    a scheduler knows."""

    _remembers = False

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if not self._remembers:
            self._remembers = True
            for other in tune_controller.get_trials():
                if other.is_finished() and other.trial_id not in self._trial_info:
                    self._recall(other)
        decision: str = super().on_trial_result(tune_controller, trial, result)
        return decision

    def _recall(self, trial: Trial) -> None:
        path = Path(trial.config["out"], "runs", trial.config["name"], "metrics.jsonl")
        if not path.is_file():
            return
        curve = curves_of(read_metrics(path)).get(self._metric)
        if curve is not None:
            for step, value in zip(curve.steps, curve.values, strict=True):
                self._brackets[0].on_result(trial, step, self._metric_op * value)


class Population(PopulationBasedTraining):
    """PBT whose members keep their own folders, and whose settings stay within the space."""

    def __init__(self, plan: SweepPlan, *, interval: int, **common: Any) -> None:
        self._dimensions = plan.dimensions
        super().__init__(
            **common,
            perturbation_interval=interval,
            hyperparam_mutations={"settings": {d.key: _mutation(d) for d in plan.dimensions}},
            quantile_fraction=0.25,
            resample_probability=0.25,
        )

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[Any, Any]:
        config, operations = super()._get_new_config(trial, trial_to_clone)
        kept = {key: trial.config[key] for key in IDENTITY}
        settings = {d.key: _inside(d, config["settings"][d.key]) for d in self._dimensions}
        return {**config, **kept, "settings": settings}, operations


def _mutation(dimension: Dimension) -> Any:
    """A list, or how a value of a range is drawn again."""
    from ray import tune

    if dimension.is_list:
        return list(dimension.values)
    low, high = dimension.values
    if dimension.is_whole:
        return (tune.lograndint if dimension.is_log else tune.randint)(low, high + 1)
    return (tune.loguniform if dimension.is_log else tune.uniform)(low, high)


def _inside(dimension: Dimension, value: Any) -> Any:
    if dimension.is_list:
        return value
    low, high = dimension.values
    value = min(max(value, low), high)
    return round(value) if dimension.is_whole else float(f"{value:.4g}")
