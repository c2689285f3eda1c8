"""`omg train --seeds=1:4`: one configuration with several seeds, side by side on this machine. Done
as a pipeline is: what is done is skipped, what was interrupted is resumed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omg.config.arguments import parse_arguments
from omg.config.loader import load
from omg.config.schema import Config
from omg.evaluation.statistics import mean_interval
from omg.evaluation.words import NO_INTERVAL
from omg.experiment.checks import sanity_check
from omg.experiment.session import check_environment
from omg.studies.execute import run_pipeline
from omg.studies.state import PipelineState
from omg.studies.steps import FREE, Plan, Step, training_step
from omg.studies.sweep.spec import checked
from omg.types import OmgError, user_path

# Keys that a single run has, and what to do instead of giving them.
RESERVED = {
    "seed": "--seeds names them all",
    "resume": "The same command continues what was interrupted",
    "evaluate": "It trains; test the runs with omg evaluate",
}


@dataclass(slots=True)
class SeedWords:
    """A command line of `omg train`: what concerns all seeds, and the words of every run."""

    seeds: str = ""
    jobs: str = "0"
    out: str = ""
    redo: bool = False
    rest: list[str] = field(default_factory=list)


def split_seeds(words: Sequence[str]) -> SeedWords:
    """The options that go with --seeds, and all others in their order."""
    found = SeedWords()
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in ("--seeds", "--jobs", "--out"):
            setattr(found, name[2:], value)
        elif word == "--redo":
            found.redo = True
        else:
            found.rest.append(word)
    return found


def train_seeds(words: SeedWords) -> list[str]:
    """Train them, and say what came of it in lines."""
    if not words.jobs.isdecimal():
        raise OmgError(f"--jobs={words.jobs} is not possible. Give how many run at a time, or 0.")
    plan = plan_of(words.rest, words.seeds, words.out)
    run_pipeline(plan, jobs=int(words.jobs), redo=words.redo)
    return _summary(plan)


def plan_of(words: Sequence[str], seeds: str, out: str = "") -> Plan:
    """A run per seed, each by the same words; checked before anything runs."""
    arguments = parse_arguments(words)
    for update in arguments.updates:
        if advice := RESERVED.get(update.path):
            raise OmgError(f"'{update.origin}' cannot stand beside --seeds. {advice}.")
    numbers = checked({"seeds": seeds}, "omg train").seeds
    loaded = load(arguments)
    check_environment(loaded)
    config = loaded.config
    sanity_check(config)
    folder = user_path(out) if out else Path(config.local_results_path, _name(config))
    return Plan(
        name=config.name,
        env_config=config.env,
        out=folder,
        title=f"Training {config.name} on {config.env} with {len(numbers)} seeds",
        steps=tuple(_step(words, config, seed, folder) for seed in numbers),
    )


def _name(config: Config) -> str:
    """The folder's name, after the run's if it has one."""
    task = config.env_args.get("key") or config.env_args.get("map_name") or config.env
    parts = [config.run_name] if config.run_name else [config.name, str(task), config.label]
    return re.sub(r"[^\w.+-]+", "_", "-".join(filter(None, parts)))


def _step(words: Sequence[str], config: Config, seed: int, out: Path) -> Step:
    given = {update.path for update in parse_arguments(words).updates}
    return training_step(
        *(f"s{seed}", words, config),
        out=out,
        seed=seed,
        free={key: value for key, value in config.as_dict().items() if key in given},
        ignored={*FREE, "local_results_path", "run_name"},
    )


def _summary(plan: Plan) -> list[str]:
    records = PipelineState(plan).records
    results = [records[step.key].result for step in plan.steps]
    lines = []
    for name in dict.fromkeys(name for result in results for name in result):
        values = [result[name] for result in results if name in result]
        mean = mean_interval(values)
        beside = f"(seeds {', '.join(f'{value:.3f}' for value in values)})"
        if mean.low is not None and mean.high is not None:
            beside = f"[{mean.low:.3f}, {mean.high:.3f}] (95 % t interval over {len(values)} seeds)"
        lines.append(f"Last {name.replace('_', ' ')}: {mean.value:.3f} {beside}")
        lines += [NO_INTERVAL] * (1 < len(values) < 3)
    drawn = f"Draw them: omg plot {shlex.quote(str(plan.out))}/s[0-9]*"
    return [*lines, drawn, f"Everything is in {plan.out}"]
