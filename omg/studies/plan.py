"""From a pipeline's file to its steps, each checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from omg.config.loader import available
from omg.studies.named import meaning
from omg.studies.plan_headroom import headroom_steps
from omg.studies.plan_tuning import acting, tuning_steps, weights
from omg.studies.planner import Planner, Source, saved_models
from omg.studies.spec import (
    KIND,
    POOL_DEFAULTS,
    CompareSpec,
    CrossplaySpec,
    HeadroomSpec,
    Side,
    find_pipeline,
    read_spec,
)
from omg.studies.steps import Plan, Step, merged, to_words
from omg.studies.teams import benchmark_plan, read_benchmark
from omg.types import OmgError, user_path

__all__ = ["Source", "make_plan", "plan_of", "saved_models"]


def plan_of(
    *,
    pipeline: str = "",
    env_config: str = "",
    out: str = "",
    words: Sequence[str] = (),
    headroom: bool = False,
) -> Plan:
    """The steps of a shipped pipeline or a file; without a name, that of the environment.
    `headroom`: measure it also where the file does not ask for it."""
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
    written = spec = read_spec(path, shown)
    if headroom and spec.headroom is None:
        spec = spec.model_copy(update={"headroom": HeadroomSpec()})
    env = env_config or spec.env_config
    if not env:
        raise OmgError(f"{shown} names no env_config. Give --env-config=<env>.")
    name = path.stem if env in (spec.env_config, path.stem) else f"{path.stem}-{Path(env).stem}"
    folder = user_path(out or f"results/{name}")
    return make_plan(
        Source(
            name=name,
            shown=shown,
            spec=spec,
            env_config=env,
            out=folder,
            words=words,
            text=path.read_text(encoding="utf-8"),
            written=written,
        )
    )


def make_plan(source: Source) -> Plan:
    """The steps of a pipeline. Every training command is checked as `omg train` would."""
    planner, spec = Planner(source), source.spec
    opponents = planner.opponents()
    pool = pool_step(planner, opponents)
    priors = planner.priors()
    tuning = tuning_steps(planner, spec.tuning) if spec.tuning is not None else []
    agents = planner.agents()
    steps = [*opponents, pool, *priors, *tuning, *agents]
    measured: list[Step] = []
    if spec.headroom is not None:
        measured = headroom_steps(planner, spec.headroom, agents)
        steps += measured
    if spec.compare is not None:
        steps.append(compare_step(planner, spec.compare))
    if spec.crossplay is not None:
        steps.append(crossplay_step(planner, spec.crossplay, agents, measured[-1:]))
    if spec.report:
        steps.append(report_step(planner))
    return Plan(
        name=source.name,
        env_config=source.env_config,
        out=source.out,
        spec=spec,
        text=source.text,
        parts=meaning(source.written or spec, source.env_config, planner.given),
        steps=tuple(steps),
    )


def pool_step(planner: Planner, opponents: Sequence[Step]) -> Step:
    """Runs first, in the file's order, then scripts."""
    members: list[dict[str, Any]] = []
    told = planner.spec.opponents
    for entry in told.runs:
        for split in get_args(Side):
            seeds = [seed for seed in entry.seeds if entry.side(seed) == split]
            runs = [f"opponents/{entry.run_name(seed)}" for seed in seeds]
            if runs:
                members.append({"runs": runs, "steps": list(entry.steps), "split": split})
    env = _env(planner) if told.scripts else POOL_DEFAULTS["env"]
    for number, script in enumerate(told.scripts):
        _check_script(planner, script.name, env, f"opponents.scripts[{number}]")
        members.append({"script": script.name, "noise": script.noise, "split": script.split})
    return Step(
        key="pool",
        stage="pool",
        kind="pool",
        commands=tuple(_pool_command(planner, entry, env) for entry in members),
        settings={"members": members, "env": env},
        needs=tuple(step.key for step in opponents),
        output=planner.pool,
    )


def _pool_command(planner: Planner, entry: Mapping[str, Any], env: str) -> tuple[str, ...]:
    if "script" in entry:
        named = [f"--script={entry['script']}", f"--env={env}"]
        named.append(f"--noise={entry['noise']}")
    else:
        named = [*(str(planner.out / run) for run in entry["runs"])]
        named.append(f"--steps={','.join(entry['steps'])}")
    return ("pool", "add", str(planner.pool), *named, f"--split={entry['split']}")


def _env(planner: Planner) -> str:
    """The environment that is played."""
    words = (f"--env-config={planner.source.env_config}", *to_words(planner.given))
    return planner.load((*words, *to_words(planner.spec.common)), "common").env


def _check_script(planner: Planner, name: str, env: str, where: str) -> None:
    from omg.opponents.scripts import scripted_game

    try:
        scripted_game(env).make_script(name)
    except OmgError as error:
        raise planner.error(where, str(error)) from error


def crossplay_step(
    planner: Planner, wanted: CrossplaySpec, agents: Sequence[Step], headroom: Sequence[Step]
) -> Step:
    """All agents against all opponents; with headroom, returns are normalised by it, too."""
    options = [
        f"--pool={planner.pool}",
        f"--split={wanted.split}",
        f"--episodes={wanted.episodes}",
        f"--finetune-episodes={wanted.finetune_episodes}",
        f"--metric={wanted.metric}",
        *([] if wanted.baseline is None else [f"--baseline={wanted.baseline}"]),
        f"--replays={wanted.replays}",
        *(["--permute"] if wanted.permute else []),
        *acting(wanted),
        *weights(wanted),
        *(f"--headroom={step.output}" for step in headroom),
        f"--out={planner.out}",
    ]
    runs = [str(step.output) for step in agents]
    return Step(
        key="crossplay",
        stage="crossplay",
        kind="command",
        commands=(("crossplay", *runs, *options),),
        settings=wanted.model_dump(),
        needs=("pool", *(step.key for step in agents), *(step.key for step in headroom)),
        output=planner.out / "crossplay.json",
        leaves=(
            *("crossplay.csv", "summary.csv", "paired.csv", "comparisons.csv", "profiles.csv"),
            *("steps.csv", "rliable.json", "crossplay*.png", "replays"),
        ),
        spreads=True,
    )


def compare_step(planner: Planner, wanted: CompareSpec) -> Step:
    """On which share of the same states the members of the pool act differently."""
    game = merged(planner.spec.common, planner.given).get("env_args", {})
    env_config = planner.source.env_config
    words = [
        *(str(planner.pool), f"--env-config={env_config}", f"--episodes={wanted.episodes}"),
        *([f"--beside={wanted.beside}"] if wanted.beside else []),
        f"--out={planner.out}",
        *to_words({"env_args": game} if game else {}),
    ]
    return Step(
        key="compare",
        stage="compare",
        kind="command",
        commands=(("pool", "compare", *words),),
        settings={**wanted.model_dump(), "env_config": env_config, "env_args": game},
        needs=("pool",),
        output=planner.out / "nearest.csv",
        leaves=("disagreement.csv",),
    )


def report_step(planner: Planner) -> Step:
    """The page that shows it all."""
    compared = ("compare",) if planner.spec.compare else ()
    output = planner.out / "report.html"
    return Step(
        key="report",
        stage="report",
        kind="command",
        commands=(("report", str(planner.out), f"--out={output}"),),
        settings={},
        needs=("crossplay", *compared),
        output=output,
    )
