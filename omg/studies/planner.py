"""Training runs of a pipeline as steps, each checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.config.arguments import parse_arguments
from omg.config.loader import load_command_line
from omg.config.schema import Config, marked
from omg.controllers import CONTROLLERS
from omg.learners import LEARNERS
from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.runners import runner_of
from omg.studies.spec import (
    Method,
    OpponentRuns,
    PipelineSpec,
    slug,
)
from omg.studies.steps import (
    Step,
    merged,
    refuse_reserved,
    settings_of,
    to_words,
    training_step,
    without,
)
from omg.types import OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checked file and what the command line adds to it."""

    name: str
    shown: str
    spec: PipelineSpec
    env_config: str
    out: Path
    words: Sequence[str] = ()  # --key=value for every training run
    text: str = ""  # of the file
    written: PipelineSpec | None = None  # the file's own content, where `spec` has more


@dataclass(frozen=True, slots=True)
class Tuned:
    """A file with the values of some keys, and the step that makes it."""

    step: str
    file: Path
    keys: tuple[str, ...]


class Planner:
    """Makes the steps that train, from a checked file."""

    def __init__(self, source: Source) -> None:
        self.source, self.spec, self.out = source, source.spec, source.out
        self.pool = source.out / "pool"
        self.given = settings_of(parse_arguments(source.words))
        refuse_reserved(self.given, "the command line")
        self._priors: dict[str, Config] = {}
        self._loaded: dict[tuple[str, ...], Config] = {}

    # --- training runs -----------------------------------------------------------------------

    def opponents(self) -> list[Step]:
        steps: list[Step] = []
        for number, entry in enumerate(self.spec.opponents.runs):
            for seed in entry.seeds:
                step, config = self.train(
                    f"opponents/{entry.run_name(seed)}",
                    f"opponents.runs[{number}]",
                    config=entry.config,
                    settings=(self.spec.opponents.settings, entry.settings),
                    seed=seed,
                )
                self._check_opponent(entry, config, f"opponents.runs[{number}]")
                steps.append(step)
        return steps

    def priors(self) -> list[Step]:
        steps: list[Step] = []
        for name, prior in self.spec.priors.items():
            where = f"priors.{name}"
            if "learner" in prior.settings:
                raise self.error(where, "'learner' is am_learner in every prior. Leave it out.")
            for run, seed in self.spec.prior_runs(name).items():
                step, config = self.train(
                    f"priors/{run}",
                    where,
                    config=prior.config,
                    settings=(prior.settings,),
                    seed=seed,
                    fixed={"learner": "am_learner"},
                    places={"opponent_pool": str(self.pool)},
                    needs=("pool",),
                )
                try:
                    LEARNERS[config.learner].check(config)
                except OmgError:
                    told = f"{prior.config} has no opponent model to pre-train."
                    raise self.error(where, told) from None
                self._priors[name] = config
                steps.append(step)
        return steps

    def agents(self) -> list[Step]:
        agents = self.spec.agents
        steps: list[Step] = []
        for number, method in enumerate(agents.methods):
            where = f"agents.methods[{number}] ({method.name})"
            for seed in method.seeds or agents.seeds:
                places, needs = self.beginning(method, seed)
                step, config = self.train(
                    f"agents/{method.run_name(seed)}",
                    where,
                    config=method.config,
                    settings=(agents.settings, method.settings),
                    seed=seed,
                    fixed={"label": method.name},
                    places=places,
                    needs=needs,
                    tuned=self.tuned(method),
                )
                self._check_agent(method, config, where)
                steps.append(step)
        return steps

    def tuned(self, method: Method) -> Tuned | None:
        """Where the settings of a tuned method will be."""
        space = self.spec.space_of(method)
        name = slug(method.name)
        file = self.out / "tuning" / f"{name}.yaml"
        return Tuned(f"tuning/choice-{name}", file, tuple(space)) if space else None

    def beginning(self, method: Method, seed: int) -> tuple[dict[str, str], list[str]]:
        """Where the pool and the prior of an agent lie, and the steps that make them."""
        places, needs = {"opponent_pool": str(self.pool)}, ["pool"]
        if method.prior is not None:
            needs.append(f"priors/{self.spec.prior_run(method.prior, seed)}")
            places["init_param_path"] = str(self.out / needs[-1])
        return places, needs

    def train(
        self,
        key: str,
        where: str,
        *,
        config: str,
        settings: Sequence[Mapping[str, Any]],
        seed: int,
        fixed: Mapping[str, Any] | None = None,
        places: Mapping[str, str] | None = None,
        needs: Sequence[str] = (),
        tuned: Tuned | None = None,
    ) -> tuple[Step, Config]:
        """A training run with its configuration. `fixed`: what the pipeline itself decides;
        `places`: folders of other steps, which are `needs`; `tuned`: settings that a step chooses
        in place of those given here."""
        for name, layer in (("common", self.spec.common), *((where, s) for s in settings)):
            refuse_reserved(layer, f"{self.source.shown}: {name}")
        both = merged(self.spec.common, *settings, self.given)
        named = [f"--config={config}", f"--env-config={self.source.env_config}"]
        own = (*named, *to_words(both), *to_words(fixed or {}))
        loaded = self.load(own, where)
        chosen: tuple[str, ...] = ()
        if tuned is not None:
            needs, chosen = (*needs, tuned.step), ("with", str(tuned.file))
            own = (*named, *to_words(without(both, tuned.keys)), *to_words(fixed or {}))
        step = training_step(
            *(key, own, loaded),
            out=self.out,
            seed=seed,
            free=both,
            places=places,
            needs=needs,
            after=chosen,
        )
        return step, loaded

    def config_of(self, config: str, settings: Sequence[Mapping[str, Any]], where: str) -> Config:
        """The configuration of a run with these settings."""
        named = [f"--config={config}", f"--env-config={self.source.env_config}"]
        both = merged(self.spec.common, *settings, self.given)
        return self.load((*named, *to_words(both)), where)

    def load(self, words: tuple[str, ...], where: str) -> Config:
        """The configuration of a training command; read once for all its seeds."""
        if words not in self._loaded:
            try:
                self._loaded[words] = load_command_line(words).config
            except OmgError as error:
                raise self.error(where, str(error)) from error
        if not self._loaded[words].save_model:
            raise self.error(where, "save_model=False leaves nothing to go on with. Set it True.")
        return self._loaded[words]

    def _check_opponent(self, entry: OpponentRuns, config: Config, where: str) -> None:
        model = model_kind(config)
        if issubclass(model, SubgoalModel) or model.needs_foresight:
            raise self.error(
                where,
                f"{entry.config} cannot be trained as a team before there is a pool. Opponents are "
                "teams, e.g. iql, qmix or iql_am.",
            )
        wanted = len({"early", "middle"} & set(entry.steps)) and 3
        saved = saved_models(config)
        if saved < wanted:
            raise self.error(
                where,
                f"early, middle and final need 3 saved models, the run keeps {saved}. Lower "
                f"save_model_interval={config.save_model_interval}, or set keep_models=0.",
            )

    def check_one_agent(self, config: Config, where: str) -> None:
        """It learns to act, as one agent beside a pool."""
        if not CONTROLLERS[config.mac].models:
            raise self.error(
                where,
                f"{config.name} trains a whole team (mac={config.mac}). Choose one that learns "
                "beside a pool, e.g. d3qn.",
            )
        if LEARNERS[config.learner].gathers:
            raise self.error(where, "learner=am_learner makes a prior. Move it to priors.")

    def _check_agent(self, method: Method, config: Config, where: str) -> None:
        self.check_one_agent(config, where)
        if issubclass(model_kind(config), SubgoalModel) and method.prior is None:
            raise self.error(where, f"{method.config} needs a prior. Add one, and name it.")
        trained = self._priors.get(method.prior or "", config)
        if trained.name != config.name and not _same_prior(trained, config):
            raise self.error(
                where,
                f"the prior '{method.prior}' is one of {trained.name}, the method is "
                f"{config.name}. Give both the same config.",
            )

    def error(self, where: str, text: str) -> OmgError:
        """A sentence about a part of the file."""
        return OmgError(f"{self.source.shown}: {where}: {text}")


def _same_prior(trained: Config, config: Config) -> bool:
    """Whether two algorithms learn the same subgoal prior, as OMG and MOA with OMG do."""
    keys = marked(prior=True) - {"am_model", "moa_goal"}
    return all(issubclass(model_kind(each), SubgoalModel) for each in (trained, config)) and all(
        getattr(trained, key) == getattr(config, key) for key in keys
    )


def saved_models(config: Config) -> int:
    """How many models/<step> folders a run will have kept at its end."""
    copies = runner_of(config).n_training
    between = math.ceil(config.save_model_interval / copies)  # in steps of all copies
    end = math.ceil(config.t_max / copies)
    saved = end // between + (end % between > 0)
    return min(saved, config.keep_models) if config.keep_models else saved
