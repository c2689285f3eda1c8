"""The file of a pipeline: who is trained against whom, and how they are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from omg.config.loader import CONFIG_DIR, available, read_yaml
from omg.config.schema import Count, Section, Steps, Unit
from omg.registry import nearest
from omg.types import OmgError, user_path

KIND = "pipelines"
S = TypeVar("S", bound=Section)


def _empty(kind: type) -> BeforeValidator:
    """A key without a value (`settings:`) is an empty one."""
    return BeforeValidator(lambda value: kind() if value is None else value)


Name = Annotated[str, Field(min_length=1)]
Settings = Annotated[dict[str, Any], _empty(dict)]
Seeds = Annotated[tuple[Steps, ...], Field(min_length=1)]
Side = Literal["train", "validation", "heldout"]


def slug(name: str) -> str:
    """A display name as a part of a folder's name: 'OMG tuned' -> 'omg_tuned'."""
    return re.sub(r"[^a-z0-9.+-]+", "_", name.lower()).strip("_.")


class OpponentRuns(Section):
    """Runs of one algorithm; `steps` says which of their checkpoints join the pool."""

    config: Name
    name: str = ""  # begins the folders' names; empty: the configuration's
    seeds: Seeds
    split: Side = "train"  # the side of all seeds that the next two do not name
    heldout_seeds: Annotated[tuple[Steps, ...], _empty(tuple)] = ()
    validation_seeds: Annotated[tuple[Steps, ...], _empty(tuple)] = ()
    steps: Annotated[tuple[Literal["early", "middle", "final"], ...], Field(min_length=1)] = (
        "final",
    )
    settings: Settings = Field(default_factory=dict)

    @property
    def folder(self) -> str:
        return slug(self.name or Path(self.config).stem)

    def run_name(self, seed: int) -> str:
        return f"{self.folder}-s{seed}"

    def side(self, seed: int) -> Side:
        """The side of the pool that a seed's checkpoints join."""
        if seed in self.heldout_seeds:
            return "heldout"
        return "validation" if seed in self.validation_seeds else self.split

    @model_validator(mode="after")
    def _consistent(self) -> OpponentRuns:
        all_different("seeds", self.seeds)
        all_different("steps", self.steps)
        for key in ("heldout_seeds", "validation_seeds"):
            for seed in getattr(self, key):
                if seed not in self.seeds:
                    raise ValueError(f"{key} has {seed}, which is not among the seeds")
        for seed in self.validation_seeds:
            if seed in self.heldout_seeds:
                raise ValueError(f"seed {seed} is in heldout_seeds and in validation_seeds")
        return self


class ScriptedOpponent(Section):
    """A scripted player of the pool."""

    name: Name
    noise: Unit = 0.0
    split: Side = "train"


class Opponents(Section):
    settings: Settings = Field(default_factory=dict)
    runs: Annotated[tuple[OpponentRuns, ...], _empty(tuple)] = ()
    scripts: Annotated[tuple[ScriptedOpponent, ...], _empty(tuple)] = ()

    def sides(self) -> set[str]:
        """The sides of the pool that have a member."""
        runs = {entry.side(seed) for entry in self.runs for seed in entry.seeds}
        return runs | {script.split for script in self.scripts}

    def members(self) -> list[str]:
        """All members of the pool, as `opponent_members` names them before the pool is made."""
        runs = [
            f"{entry.run_name(seed)}:{skill}"
            for entry in self.runs
            for seed in entry.seeds
            for skill in entry.steps
        ]
        return runs + [f"script-{script.name}-{script.noise:g}" for script in self.scripts]


class Prior(Section):
    """A pre-trained prior (`learner=am_learner`) of the methods naming it: one for every seed of
    theirs, or one that all seeds share (`seed`), as files without `per_seed` mean it."""

    config: Name
    per_seed: bool = False
    seed: Steps = 1
    settings: Settings = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Prior:
        if self.per_seed and "seed" in self.model_fields_set:
            raise ValueError("seed is that of a shared prior, and per_seed is true; leave one out")
        return self


class Method(Section):
    """A way to learn that is compared with others, under its display name."""

    name: Name
    config: Name
    prior: str | None = None
    seeds: Seeds | None = None  # None: those of all agents
    settings: Settings = Field(default_factory=dict)

    def run_name(self, seed: int) -> str:
        return f"{slug(self.name)}-s{seed}"


class Agents(Section):
    settings: Settings = Field(default_factory=dict)
    seeds: Seeds
    methods: Annotated[tuple[Method, ...], Field(min_length=1)]


class Tuning(Section):
    """The same search for every method over its own space, judged by the validation side; the
    best configuration enters the method's agents."""

    budget: Count  # configurations of each method, the one of the file among them
    seeds: Seeds = (1001,)
    settings: Settings = Field(default_factory=dict)  # of every tuning run, over the agents'
    draw_seed: Steps = 0
    episodes: Count = 100  # per opponent
    # By name; a method without anything to tune has null.
    methods: dict[str, dict[str, Any] | None]


class BestResponse(Section):
    """The agent that is trained with one opponent alone."""

    config: str = ""  # empty: the plain method's
    seeds: Seeds | None = None  # None: the first three of the agents'
    settings: Settings = Field(default_factory=dict)  # over the plain method's


class HeadroomSpec(Section):
    """What there is to gain: the methods it is measured by, each by its name (None: the first
    method without an opponent model, with control_am, with oracle_am), and best responses (null:
    none, where they would take too long)."""

    plain: str | None = None
    control: str | None = None
    oracle: str | None = None
    best_response: BestResponse | None = BestResponse()
    episodes: Count = 100


class CompareSpec(Section):
    """How different the members of the pool are: what `omg pool compare` is asked for."""

    episodes: Count = 32  # that each member plays
    beside: str = ""  # the member in the other seats; empty: copies of itself


class CrossplaySpec(Section):
    """What `omg crossplay` is asked for."""

    episodes: Count = 100
    split: Literal["train", "validation", "heldout", "both", "all"] = "both"
    finetune_episodes: Steps = 0
    metric: Name = "own_return"
    baseline: str | None = None
    replays: Steps = 0
    sample: bool = False  # agents explore or sample as in training; else as they are tested
    greedy: bool = False  # agents take their best action
    which: Literal["last", "best"] = "last"  # weights: the last, or those of the best test
    permute: bool = False  # also play with what was inferred in other episodes


# What `split` may be where it includes a side.
SPLITS_WITH = {"heldout": ("heldout", "both", "all"), "validation": ("validation", "all")}

# The settings of a pool's step beside its members.
POOL_DEFAULTS = {"env": "foraging"}


class PipelineSpec(Section):
    """A whole study."""

    env_config: str | None = None
    common: Settings = Field(default_factory=dict)
    opponents: Opponents
    priors: Annotated[dict[str, Prior], _empty(dict)] = Field(default_factory=dict)
    agents: Agents
    tuning: Tuning | None = None
    headroom: HeadroomSpec | None = None
    compare: CompareSpec | None = None
    crossplay: CrossplaySpec | None = None
    report: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> PipelineSpec:
        agents, methods = self.agents, self.agents.methods
        for seeds in (agents.seeds, *(method.seeds or () for method in agents.methods)):
            all_different("agents.seeds", seeds)
        all_different("the folders of agents.methods", [slug(m.name) for m in methods])
        all_different("the folders of priors", [n for p in self.priors for n in self.prior_runs(p)])
        runs = [entry.run_name(seed) for entry in self.opponents.runs for seed in entry.seeds]
        all_different("the folders of opponents.runs (give one entry a 'name')", runs)
        all_different("opponents.scripts", [(s.name, s.noise) for s in self.opponents.scripts])
        for name in [*self.priors, *(m.name for m in methods)]:
            if not slug(name):
                raise ValueError(f"'{name}' has no letters or digits to name a folder by")
        for method in methods:
            if method.prior is not None and method.prior not in self.priors:
                raise ValueError(
                    f"the method '{method.name}' names the prior '{method.prior}', which is not "
                    f"among the priors{nearest(method.prior, self.priors)}"
                )
        self._check_tuning()
        self._check_headroom()
        self._check_sides()
        return self

    def space_of(self, method: Method) -> dict[str, Any]:
        """The search space of a method; empty where it is not tuned."""
        return (self.tuning.methods.get(method.name) or {}) if self.tuning else {}

    def _check_tuning(self) -> None:
        if self.tuning is None:
            return
        names, spaces = [method.name for method in self.agents.methods], self.tuning.methods
        for name in spaces:
            if name not in names:
                raise ValueError(
                    f"tuning.methods has '{name}', which is not the name of a method"
                    f"{nearest(name, names) or '; methods: ' + ', '.join(names)}"
                )
        for method in self.agents.methods:
            if method.name not in spaces:
                raise ValueError(
                    f"the method '{method.name}' has no search space in tuning.methods; give one, "
                    "or null if there is nothing to tune"
                )
            for seed in set(self.tuning.seeds) & set(method.seeds or self.agents.seeds):
                raise ValueError(f"tuning.seeds has {seed}, which is a seed of the agents")
        if "validation" not in self.opponents.sides():
            raise ValueError(
                "tuning is judged by validation opponents; add validation_seeds, or a script with "
                "split: validation"
            )

    def _check_headroom(self) -> None:
        names = [method.name for method in self.agents.methods]
        for key in ("plain", "control", "oracle"):
            named = getattr(self.headroom, key, None)
            if named is not None and named not in names:
                raise ValueError(
                    f"headroom.{key}='{named}' is not the name of a method"
                    f"{nearest(named, names) or '; methods: ' + ', '.join(names)}"
                )

    def prior_runs(self, name: str) -> dict[str, int]:
        """The runs that train a prior, with their seeds."""
        prior = self.priors[name]
        if not prior.per_seed:
            return {slug(name): prior.seed}
        users = [method for method in self.agents.methods if method.prior == name]
        tuned = [s for m in users if self.space_of(m) and self.tuning for s in self.tuning.seeds]
        seeds = [*tuned, *(seed for m in users for seed in m.seeds or self.agents.seeds)]
        return {f"{slug(name)}-s{seed}": seed for seed in seeds or self.agents.seeds}

    def prior_run(self, name: str, seed: int) -> str:
        """The run whose prior an agent of that seed begins with."""
        return f"{slug(name)}-s{seed}" if self.priors[name].per_seed else slug(name)

    def _check_sides(self) -> None:
        sides, crossplay = self.opponents.sides(), self.crossplay
        if "train" not in sides:
            raise ValueError("no opponent is on the train side of the pool; agents need one")
        if crossplay is None:
            if self.report:
                raise ValueError("report shows the cross-play; add crossplay, or set report: false")
            return
        for side, told in (("heldout", "held-out"), ("validation", "validation")):
            if crossplay.split in SPLITS_WITH[side] and side not in sides:
                raise ValueError(
                    f"crossplay.split={crossplay.split} needs {told} opponents; add {side}_seeds, "
                    f"or a script with split: {side}"
                )
        if crossplay.sample and crossplay.greedy:
            raise ValueError("crossplay: agents sample or are greedy, not both; leave one out")
        names = [method.name for method in self.agents.methods]
        if crossplay.baseline is not None and crossplay.baseline not in names:
            raise ValueError(
                f"crossplay.baseline='{crossplay.baseline}' is not the name of a method"
                f"{nearest(crossplay.baseline, names) or '; methods: ' + ', '.join(names)}"
            )


def all_different(what: str, values: Iterable[Any]) -> None:
    """Refuse values that stand there twice."""
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{what}: {value} stands there {count} times; once is enough")


# --- reading -----------------------------------------------------------------------------------


def find_pipeline(name: str) -> tuple[Path, str]:
    """The file that `--pipeline` names, and how messages call it."""
    if name.endswith((".yaml", ".yml")):
        return user_path(name), name
    path = CONFIG_DIR / KIND / f"{name}.yaml"
    if "/" in name or not path.is_file():
        names = available(KIND)
        raise OmgError(
            f"There is no pipeline called '{name}'{nearest(name, names) or '.'} Those that exist: "
            f"{', '.join(names)}; or give --pipeline=<path ending in .yaml>."
        )
    return path, f"config/{KIND}/{name}.yaml"


def read_spec(path: Path, shown: str) -> PipelineSpec:
    """Read and check a pipeline's file; what is wrong is said with its key."""
    return validated(PipelineSpec, read_yaml(path, shown), shown)


def validated(kind: type[S], content: Any, shown: str) -> S:
    """A file's content, checked."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        sentences = dict.fromkeys(_sentence(problem, shown, kind) for problem in problems)
        raise OmgError("\n".join(sentences)) from error


def _sentence(problem: Any, shown: str, kind: type[Section]) -> str:
    location: tuple[int | str, ...] = problem["loc"]
    path = _dotted(location)
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "extra_forbidden":
        known = _keys_at(location[:-1], kind)
        hint = nearest(str(location[-1]), known) or f". Possible here: {', '.join(known)}."
        return f"{shown}: unknown key '{path}'{hint}"
    if problem["type"] == "missing":
        return f"{shown}: '{path}' has no value. Add it."
    if problem["type"] == "value_error":
        return f"{shown}: {path + ': ' if path else ''}{message}."
    return f"{shown}: {path}={problem['input']!r} is not possible. Expected: {message}."


def _dotted(location: Sequence[int | str]) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location)
    return text.removeprefix(".")


def _keys_at(location: Sequence[int | str], kind: Any) -> list[str]:
    """The keys that are possible in a part of the file."""
    for part in location:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
        else:  # an element of tuple[X, ...] or dict[str, X]
            kind = get_args(kind)[issubclass(get_origin(kind) or object, Mapping)]
        if get_origin(kind) in (Union, UnionType):
            kind = get_args(kind)[0]
    return list(kind.model_fields)
