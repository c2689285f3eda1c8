"""A benchmark of teams: every algorithm on every task, from a file whose one section is `teams`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from omg.config.arguments import parse_arguments
from omg.config.loader import load_command_line, read_yaml
from omg.config.schema import Config, Count, Section
from omg.controllers import CONTROLLERS
from omg.studies.spec import Name, Seeds, Settings, all_different, slug, validated
from omg.studies.steps import (
    Plan,
    Step,
    merged,
    refuse_reserved,
    settings_of,
    to_words,
    training_step,
)
from omg.types import OmgError


class Task(Section):
    """A game that all teams learn."""

    name: Name
    env_config: Name
    settings: Settings = Field(default_factory=dict)


class TeamMethod(Section):
    """An algorithm, under its display name."""

    name: Name
    config: Name
    settings: Settings = Field(default_factory=dict)


class Teams(Section):
    """Settings win in this order: the task's, those of all, the method's, the command line's."""

    settings: Settings = Field(default_factory=dict)
    seeds: Seeds
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    methods: Annotated[tuple[TeamMethod, ...], Field(min_length=1)]
    random_episodes: Count = 1000

    @model_validator(mode="after")
    def _consistent(self) -> Teams:
        all_different("teams.seeds", self.seeds)
        for what, named in (("tasks", self.tasks), ("methods", self.methods)):
            all_different(f"the folders of teams.{what}", [slug(each.name) for each in named])
            for each in named:
                if not slug(each.name):
                    raise ValueError(f"'{each.name}' has no letters or digits to name a folder by")
        return self


class BenchmarkSpec(Section):
    """The whole file."""

    teams: Teams


def read_benchmark(path: Path, shown: str) -> BenchmarkSpec | None:
    """The file's benchmark; None: it is a pipeline."""
    content = read_yaml(path, shown)
    if "teams" not in content:
        return None
    return validated(BenchmarkSpec, content, shown)


def benchmark_plan(
    spec: BenchmarkSpec, *, name: str, shown: str, out: Path, words: Sequence[str]
) -> Plan:
    """A run per task, method and seed, all of the first seed first, and the table."""
    given = settings_of(parse_arguments(words))
    refuse_reserved(given, "the command line")
    teams, loaded = spec.teams, dict[tuple[str, ...], Config]()
    steps: list[Step] = []
    for seed in teams.seeds:
        for task in teams.tasks:
            for number, method in enumerate(teams.methods):
                where = f"{shown}: teams.methods[{number}] ({method.name}) on {task.name}"
                layers = (task.settings, teams.settings, method.settings)
                for layer in layers:
                    refuse_reserved(layer, where)
                settings = merged(*layers, given)
                own = (
                    *(f"--config={method.config}", f"--env-config={task.env_config}"),
                    *to_words(settings),
                    *to_words({"label": method.name}),
                )
                if own not in loaded:
                    loaded[own] = _checked(own, where)
                key = f"teams/{slug(task.name)}/{slug(method.name)}-s{seed}"
                step = training_step(key, own, loaded[own], out=out, seed=seed, free=settings)
                steps.append(step)
    steps.append(_table(steps, out, teams.random_episodes))
    return Plan(
        name=name,
        env_config=", ".join(dict.fromkeys(task.env_config for task in teams.tasks)),
        out=out,
        steps=tuple(steps),
    )


def _checked(words: Sequence[str], where: str) -> Config:
    try:
        config = load_command_line(words).config
    except OmgError as error:
        raise OmgError(f"{where}: {error}") from error
    if CONTROLLERS[config.mac].models:
        raise OmgError(
            f"{where}: it trains one agent among others (mac={config.mac}). Choose a team's "
            "algorithm, e.g. qmix."
        )
    return config


def _table(runs: Sequence[Step], out: Path, episodes: int) -> Step:
    return Step(
        key="benchmark",
        stage="benchmark",
        kind="command",
        commands=(("benchmark", str(out), f"--random-episodes={episodes}"),),
        settings={"random_episodes": episodes},
        needs=tuple(step.key for step in runs),
        output=out / "benchmark.csv",
        leaves=("benchmark-*.png",),
        by_hand=True,
    )
