"""From a pipeline's file to its steps, each checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from omg.config.arguments import parse_arguments
from omg.config.loader import available, load_command_line
from omg.config.schema import Config, marked
from omg.controllers import CONTROLLERS
from omg.learners import LEARNERS
from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.runners import runner_of
from omg.studies.spec import (
    KIND,
    POOL_DEFAULTS,
    CrossplaySpec,
    Method,
    OpponentRuns,
    PipelineSpec,
    Side,
    find_pipeline,
    read_spec,
)
from omg.studies.steps import (
    FREE,
    PLACES,
    Plan,
    Step,
    cpus_of,
    merged,
    refuse_reserved,
    settings_of,
    to_words,
)
from omg.studies.teams import benchmark_plan, read_benchmark
from omg.types import OmgError, user_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checked file and what the command line adds to it."""

    name: str
    shown: str
    spec: PipelineSpec
    env_config: str
    out: Path
    words: Sequence[str] = ()  # --key=value for every training run


def plan_of(
    *, pipeline: str = "", env_config: str = "", out: str = "", words: Sequence[str] = ()
) -> Plan:
    """The steps of a shipped pipeline or a file; without a name, that of the environment."""
    if not (pipeline or env_config):
        raise OmgError(
            "Which pipeline? Give --env-config=<env> or --pipeline=<name or file>; shipped: "
            f"{', '.join(available(KIND))}."
        )
    path, shown = find_pipeline(pipeline or env_config)
    benchmark = read_benchmark(path, shown)
    if benchmark is not None:
        if env_config:
            raise OmgError(f"{shown} names the environments of its tasks. Leave --env-config out.")
        folder = user_path(out or f"results/{path.stem}")
        return benchmark_plan(benchmark, name=path.stem, shown=shown, out=folder, words=words)
    spec = read_spec(path, shown)
    env = env_config or spec.env_config
    if not env:
        raise OmgError(f"{shown} names no env_config. Give --env-config=<env>.")
    name = path.stem if env in (spec.env_config, path.stem) else f"{path.stem}-{Path(env).stem}"
    folder = user_path(out or f"results/{name}")
    return make_plan(
        Source(name=name, shown=shown, spec=spec, env_config=env, out=folder, words=words)
    )


def make_plan(source: Source) -> Plan:
    """The steps of a pipeline. Every training command is checked as `omg train` would."""
    planner = _Planner(source)
    opponents = planner.opponents()
    pool = planner.pool(opponents)
    priors = planner.priors()
    agents = planner.agents()
    steps = [*opponents, pool, *priors, *agents]
    if source.spec.crossplay is not None:
        steps.append(planner.crossplay(source.spec.crossplay, agents))
    if source.spec.report:
        steps.append(planner.report())
    return Plan(
        name=source.name,
        env_config=source.env_config,
        out=source.out,
        spec=source.spec,
        steps=tuple(steps),
    )


class _Planner:
    def __init__(self, source: Source) -> None:
        self._source, self._spec, self._out = source, source.spec, source.out
        self._pool = source.out / "pool"
        self._given = settings_of(parse_arguments(source.words))
        refuse_reserved(self._given, "the command line")
        self._priors: dict[str, Config] = {}
        self._loaded: dict[tuple[str, ...], Config] = {}

    # --- training runs -----------------------------------------------------------------------

    def opponents(self) -> list[Step]:
        steps: list[Step] = []
        for number, entry in enumerate(self._spec.opponents.runs):
            for seed in entry.seeds:
                step, config = self._train(
                    f"opponents/{entry.run_name(seed)}",
                    f"opponents.runs[{number}]",
                    config=entry.config,
                    settings=(self._spec.opponents.settings, entry.settings),
                    seed=seed,
                )
                self._check_opponent(entry, config, f"opponents.runs[{number}]")
                steps.append(step)
        return steps

    def priors(self) -> list[Step]:
        steps: list[Step] = []
        for name, prior in self._spec.priors.items():
            where = f"priors.{name}"
            if "learner" in prior.settings:
                raise self._error(where, "'learner' is am_learner in every prior. Leave it out.")
            for run, seed in self._spec.prior_runs(name).items():
                step, config = self._train(
                    f"priors/{run}",
                    where,
                    config=prior.config,
                    settings=(prior.settings,),
                    seed=seed,
                    fixed={"learner": "am_learner"},
                    places={"opponent_pool": str(self._pool)},
                    needs=("pool",),
                )
                try:
                    LEARNERS[config.learner].check(config)
                except OmgError:
                    told = f"{prior.config} has no opponent model to pre-train."
                    raise self._error(where, told) from None
                self._priors[name] = config
                steps.append(step)
        return steps

    def agents(self) -> list[Step]:
        agents = self._spec.agents
        steps: list[Step] = []
        for number, method in enumerate(agents.methods):
            where = f"agents.methods[{number}] ({method.name})"
            for seed in method.seeds or agents.seeds:
                places, needs = self._beginning(method, seed)
                step, config = self._train(
                    f"agents/{method.run_name(seed)}",
                    where,
                    config=method.config,
                    settings=(agents.settings, method.settings),
                    seed=seed,
                    fixed={"label": method.name},
                    places=places,
                    needs=needs,
                )
                self._check_agent(method, config, where)
                steps.append(step)
        return steps

    def _beginning(self, method: Method, seed: int) -> tuple[dict[str, str], list[str]]:
        """Where the pool and the prior of an agent lie, and the steps that make them."""
        places, needs = {"opponent_pool": str(self._pool)}, ["pool"]
        if method.prior is not None:
            needs.append(f"priors/{self._spec.prior_run(method.prior, seed)}")
            places["init_param_path"] = str(self._out / needs[-1])
        return places, needs

    def _train(
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
    ) -> tuple[Step, Config]:
        for name, layer in (("common", self._spec.common), *((where, s) for s in settings)):
            refuse_reserved(layer, f"{self._source.shown}: {name}")
        both = merged(self._spec.common, *settings, self._given)
        named = [f"--config={config}", f"--env-config={self._source.env_config}"]
        own = (*named, *to_words(both), *to_words(fixed or {}))
        loaded = self._load(own, where)
        folder = self._out / key
        lies = {"local_results_path": str(folder.parent), "run_name": folder.name}
        ignored = FREE | PLACES
        step = Step(
            key=key,
            stage=key.partition("/")[0],
            kind="train",
            commands=(("train", *own, *to_words({"seed": seed, **(places or {}), **lies})),),
            settings={k: v for k, v in loaded.as_dict().items() if k not in ignored}
            | {"seed": seed},
            needs=tuple(needs),
            output=folder,
            free_words=tuple(to_words({k: v for k, v in both.items() if k in FREE})),
            places=dict(places or {}),
            cpus=cpus_of(loaded),
        )
        return step, loaded

    def _load(self, words: tuple[str, ...], where: str) -> Config:
        """The configuration of a training command; read once for all its seeds."""
        if words not in self._loaded:
            try:
                self._loaded[words] = load_command_line(words).config
            except OmgError as error:
                raise self._error(where, str(error)) from error
        if not self._loaded[words].save_model:
            raise self._error(where, "save_model=False leaves nothing to go on with. Set it True.")
        return self._loaded[words]

    def _check_opponent(self, entry: OpponentRuns, config: Config, where: str) -> None:
        model = model_kind(config)
        if issubclass(model, SubgoalModel) or model.needs_foresight:
            raise self._error(
                where,
                f"{entry.config} cannot be trained as a team before there is a pool. Opponents are "
                "teams, e.g. iql, qmix or iql_am.",
            )
        wanted = len({"early", "middle"} & set(entry.steps)) and 3
        saved = saved_models(config)
        if saved < wanted:
            raise self._error(
                where,
                f"early, middle and final need 3 saved models, the run keeps {saved}. Lower "
                f"save_model_interval={config.save_model_interval}, or set keep_models=0.",
            )

    def _check_agent(self, method: Method, config: Config, where: str) -> None:
        if not CONTROLLERS[config.mac].models:
            raise self._error(
                where,
                f"{method.config} trains a whole team (mac={config.mac}). Choose one that learns "
                "beside a pool, e.g. d3qn.",
            )
        if LEARNERS[config.learner].gathers:
            raise self._error(where, "learner=am_learner makes a prior. Move it to priors.")
        if issubclass(model_kind(config), SubgoalModel) and method.prior is None:
            raise self._error(where, f"{method.config} needs a prior. Add one, and name it.")
        trained = self._priors.get(method.prior or "", config)
        if trained.name != config.name and not _same_prior(trained, config):
            raise self._error(
                where,
                f"the prior '{method.prior}' is one of {trained.name}, the method is "
                f"{config.name}. Give both the same config.",
            )

    def _error(self, where: str, text: str) -> OmgError:
        return OmgError(f"{self._source.shown}: {where}: {text}")

    # --- the rest ----------------------------------------------------------------------------

    def pool(self, opponents: Sequence[Step]) -> Step:
        """Runs first, in the file's order, then scripts."""
        members: list[dict[str, Any]] = []
        for entry in self._spec.opponents.runs:
            for split in get_args(Side):
                seeds = [seed for seed in entry.seeds if entry.side(seed) == split]
                runs = [f"opponents/{entry.run_name(seed)}" for seed in seeds]
                if runs:
                    members.append({"runs": runs, "steps": list(entry.steps), "split": split})
        env = self._env() if self._spec.opponents.scripts else POOL_DEFAULTS["env"]
        for number, script in enumerate(self._spec.opponents.scripts):
            self._check_script(script.name, env, f"opponents.scripts[{number}]")
            members.append({"script": script.name, "noise": script.noise, "split": script.split})
        return Step(
            key="pool",
            stage="pool",
            kind="pool",
            commands=tuple(self._pool_command(entry, env) for entry in members),
            settings={"members": members, "env": env},
            needs=tuple(step.key for step in opponents),
            output=self._pool,
        )

    def _pool_command(self, entry: Mapping[str, Any], env: str) -> tuple[str, ...]:
        if "script" in entry:
            named = [f"--script={entry['script']}", f"--env={env}"]
            named.append(f"--noise={entry['noise']}")
        else:
            named = [*(str(self._out / run) for run in entry["runs"])]
            named.append(f"--steps={','.join(entry['steps'])}")
        return ("pool", "add", str(self._pool), *named, f"--split={entry['split']}")

    def _env(self) -> str:
        """The environment that is played."""
        words = (f"--env-config={self._source.env_config}", *to_words(self._given))
        return self._load((*words, *to_words(self._spec.common)), "common").env

    def _check_script(self, name: str, env: str, where: str) -> None:
        from omg.opponents.scripts import scripted_game

        try:
            scripted_game(env).make_script(name)
        except OmgError as error:
            raise self._error(where, str(error)) from error

    def crossplay(self, wanted: CrossplaySpec, agents: Sequence[Step]) -> Step:
        options = [
            f"--pool={self._pool}",
            f"--split={wanted.split}",
            f"--episodes={wanted.episodes}",
            f"--finetune-episodes={wanted.finetune_episodes}",
            f"--metric={wanted.metric}",
            *([] if wanted.baseline is None else [f"--baseline={wanted.baseline}"]),
            f"--replays={wanted.replays}",
            *(["--permute"] if wanted.permute else []),
            *(["--sample"] if wanted.sample else []),
            f"--out={self._out}",
        ]
        runs = [str(step.output) for step in agents]
        return Step(
            key="crossplay",
            stage="crossplay",
            kind="command",
            commands=(("crossplay", *runs, *options),),
            settings=wanted.model_dump(),
            needs=("pool", *(step.key for step in agents)),
            output=self._out / "crossplay.json",
            leaves=(
                *("crossplay.csv", "summary.csv", "paired.csv", "comparisons.csv", "profiles.csv"),
                *("steps.csv", "rliable.json", "crossplay*.png", "replays"),
            ),
        )

    def report(self) -> Step:
        output = self._out / "report.html"
        return Step(
            key="report",
            stage="report",
            kind="command",
            commands=(("report", str(self._out), f"--out={output}"),),
            settings={},
            needs=("crossplay",),
            output=output,
        )


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
