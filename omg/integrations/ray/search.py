"""Which configuration is tried next, as Tune asks for it: planned ones in their order, or those
that Optuna chooses; each with all its seeds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from omg.storage.files import write_text
from omg.studies.steps import to_words
from omg.studies.sweep.outcome import CHOSEN, read_chosen
from omg.studies.sweep.plan import SweepPlan
from omg.studies.sweep.space import Dimension
from omg.types import OmgError

JOURNAL = "optuna.log"
# Ray sets these for its workers; a run is to find them as they are here.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PASSED = (*THREADS, "OMG_TRUST")


class PlannedSearch(Searcher):
    """Hands out one run after the other. Its place in the list and the scores are its state."""

    def __init__(self, plan: SweepPlan) -> None:
        super().__init__(metric=plan.spec.metric, mode=plan.spec.mode)
        self._plan = plan
        self._next = 0
        self._given: dict[str, tuple[int, int]] = {}
        self._scores: dict[int, dict[int, float]] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._next >= self._plan.runs:
            finished: dict[str, Any] = Searcher.FINISHED
            return finished
        number, seed = self._plan.place(self._next)
        settings = self._settings(number)
        self._next += 1
        self._given[trial_id] = (number, seed)
        return trial_config(self._plan, settings, number, seed)

    def _settings(self, number: int) -> Mapping[str, Any]:
        return self._plan.configurations[number]

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        number, seed = self._given.get(trial_id, (-1, -1))
        value = (result or {}).get(self.metric)
        failed = error or value is None or (result or {}).get("status") == "failed"
        scores = self._scores.setdefault(number, {})
        scores[seed] = math.nan if failed or value is None else float(value)
        if number >= 0 and len(scores) == len(self._plan.seeds):
            self._judged(number, list(scores.values()))

    def _judged(self, number: int, scores: list[float]) -> None:
        """All seeds of a configuration are known."""

    def save(self, checkpoint_path: str) -> None:
        state = {
            "next": self._next,
            "given": self._given,
            "scores": [[n, s, v] for n, each in self._scores.items() for s, v in each.items()],
        }
        Path(checkpoint_path).write_text(json.dumps(state), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        self._next = state["next"]
        self._given = {trial: (n, s) for trial, (n, s) in state["given"].items()}
        self._scores = {}
        for number, seed, value in state["scores"]:
            self._scores.setdefault(number, {})[seed] = value


class OptunaPlannedSearch(PlannedSearch):
    """Optuna's sampler (TPE) chooses; it hears the mean over the seeds. Its journal and the list of
    what it chose lie in the sweep's folder and are written before a run begins, so that a sweep
    that was killed goes on with the same configurations."""

    def __init__(self, plan: SweepPlan) -> None:
        super().__init__(plan)
        self._optuna: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_optuna": None}

    def _study(self) -> Any:
        if self._optuna is None:
            self._optuna = open_study(self._plan)
        return self._optuna

    def _settings(self, number: int) -> Mapping[str, Any]:
        chosen = read_chosen(self._plan.out)
        if number < len(chosen):
            return chosen[number]
        asked = self._study().ask({d.key: _distribution(d) for d in self._plan.dimensions})
        settings = {
            d.key: d.values[asked.params[d.key]] if d.is_list else asked.params[d.key]
            for d in self._plan.dimensions
        }
        write_text(self._plan.out / CHOSEN, json.dumps([*chosen, settings]) + "\n")
        return settings

    def _judged(self, number: int, scores: list[float]) -> None:
        import optuna

        study = self._study()
        trials = study.get_trials(deepcopy=False)
        if number >= len(trials) or trials[number].state.is_finished():
            return
        known = [score for score in scores if math.isfinite(score)]
        if known:
            study.tell(number, sum(known) / len(known))
        else:
            study.tell(number, state=optuna.trial.TrialState.FAIL)


def _distribution(dimension: Dimension) -> Any:
    """Of a list the places: Optuna knows only simple values."""
    from optuna import distributions

    if dimension.is_list:
        return distributions.CategoricalDistribution(list(range(len(dimension.values))))
    low, high = dimension.values
    if dimension.is_whole:
        return distributions.IntDistribution(low, high, log=dimension.is_log)
    return distributions.FloatDistribution(float(low), float(high), log=dimension.is_log)


def open_study(plan: SweepPlan) -> Any:
    """Optuna's study in the sweep's folder."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ModuleNotFoundError as error:
        raise OmgError(
            "Optuna is not installed. Install it: pip install 'omg-marl[optuna]', or use "
            "--search=random."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(plan.out / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=plan.spec.draw_seed),
        study_name="sweep",
        direction="maximize" if plan.spec.mode == "max" else "minimize",
        load_if_exists=True,
    )


def population(plan: SweepPlan) -> dict[str, Any]:
    """The same for a population as a space of Tune: PBT takes no searcher."""
    from ray import tune

    members = [
        trial_config(plan, plan.configurations[number], number, seed)
        for number, seed in map(plan.place, range(plan.runs))
    ]

    def of_member(key: str) -> Any:
        return tune.sample_from(lambda spec: members[spec.config.index][key])

    index = tune.grid_search(list(range(len(members))))
    return {"index": index, **{key: of_member(key) for key in members[0]}}


def trial_name(trial: Any) -> str:
    """Tune calls a trial as we call the run, where it knows it by then."""
    name = trial.config["name"]
    return name if isinstance(name, str) else f"member-{trial.config['index']:03d}"


def trial_config(
    plan: SweepPlan, settings: Mapping[str, Any], number: int, seed: int
) -> dict[str, Any]:
    """All that a trial needs to know; plain values only."""
    name = plan.run_name(number, seed)
    lies = {"seed": seed, "local_results_path": str(plan.out / "runs"), "run_name": name}
    return {
        "name": name,
        "out": str(plan.out),
        "settings": dict(settings),
        "words": plan.words({}),
        "place": to_words(lies),
        "metric": plan.spec.metric,
        "environ": {key: os.environ[key] for key in PASSED if key in os.environ},
        "unset": [key for key in THREADS if key not in os.environ],
        "cwd": os.getcwd(),
    }
