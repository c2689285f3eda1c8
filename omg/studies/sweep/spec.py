"""What a sweep is: its file and its command line, checked key by key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from omg.config.loader import CONFIG_DIR, available, read_yaml
from omg.config.schema import Real, Section, Steps
from omg.registry import expected, nearest
from omg.studies.sweep.space import Dimension, read_dimension
from omg.types import OmgError, user_path

KIND = "sweeps"
MOST_SEEDS = 1000
# Options that only one scheduler reads.
USED_BY = {"grace": "asha", "reduction": "asha", "perturb": "pbt"}


def read_seeds(value: Any) -> Any:
    """`1:5` is 1 2 3 4 5, both ends included; `1,4` is 1 4."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, str):
        return value
    found: list[int] = []
    try:
        for part in value.split(","):
            first, colon, last = part.partition(":")
            ends = int(first), int(last if colon else first)
            if ends[1] < ends[0] or ends[1] - ends[0] >= MOST_SEEDS:
                raise ValueError
            found += range(ends[0], ends[1] + 1)
    except ValueError:
        raise ValueError("seeds as 1:5 (1 to 5) or 1,3,4") from None
    return tuple(found)


class SweepSpec(Section):
    """The settings of a sweep; what `omg sweep` takes, and what its YAML file may hold."""

    config: str = Field("", description="the algorithm")
    env_config: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)  # of every run
    space: dict[str, Any] = Field(default_factory=dict)
    seeds: Annotated[tuple[Steps, ...], BeforeValidator(read_seeds), Field(min_length=1)] = (1,)
    search: Literal["", "random", "grid", "optuna"] = ""
    samples: Steps = 0  # configurations that are drawn; 0: 10, or all of a grid
    draw_seed: Steps = 0  # of drawing configurations
    scheduler: Literal["none", "asha", "pbt"] = "none"
    metric: str = "test_return_mean"
    mode: Literal["max", "min"] = "max"
    cpus: Annotated[Real, Field(ge=0)] = 0.0  # of one run; 0: as many as it has threads
    gpus: Annotated[Real, Field(ge=0)] = 0.0
    grace: Steps = 0  # steps before ASHA stops a run; 0: a tenth of them
    reduction: Annotated[Real, Field(gt=1)] = 3.0  # one in so many goes on (ASHA)
    perturb: Steps = 0  # steps between two exchanges (PBT); 0: a tenth of them
    max_failures: Steps = 5  # restarts of one run after a worker or a node died

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds that are all different")
        return seeds

    @model_validator(mode="after")
    def _consistent(self) -> SweepSpec:
        if self.scheduler == "pbt" and self.search in ("optuna", "grid"):
            raise ValueError(f"pbt changes settings itself; leave --search={self.search} out")
        for option, scheduler in USED_BY.items():
            given = getattr(self, option) != type(self).model_fields[option].default
            if given and self.scheduler != scheduler:
                raise ValueError(f"--{option} has no effect without --scheduler={scheduler}")
        return self

    def dimensions(self) -> tuple[Dimension, ...]:
        """The search space; refused where it is none."""
        return tuple(read_dimension(key, content) for key, content in self.space.items())

    def search_kind(self) -> str:
        """How configurations are found: as asked, else all of a grid, else at random."""
        if self.search:
            return self.search
        grids = all(d.kind == "grid" for d in self.dimensions())
        return "grid" if grids and not self.samples and self.scheduler != "pbt" else "random"


def find_sweep(name: str) -> tuple[Path, str]:
    """The file that `--space` names, and how messages call it."""
    if name.endswith((".yaml", ".yml")):
        return user_path(name), name
    path = CONFIG_DIR / KIND / f"{name}.yaml"
    if "/" in name or not path.is_file():
        names = available(KIND)
        raise OmgError(
            f"There is no sweep called '{name}'{nearest(name, names) or '.'} Those that exist: "
            f"{', '.join(names)}; or give --space=<path ending in .yaml>."
        )
    return path, f"config/{KIND}/{name}.yaml"


def read_file(name: str) -> dict[str, Any]:
    """The content of a sweep's file; `space` and `settings` are mappings."""
    path, shown = find_sweep(name)
    content = read_yaml(path, shown)
    for key in ("space", "settings"):
        if not isinstance(content.get(key) or {}, dict):
            raise OmgError(f"{shown}: '{key}' is no mapping. Write 'key: value' lines below it.")
    checked(content, shown)
    return {key: value for key, value in content.items() if value is not None}


def checked(content: Mapping[str, Any], shown: str) -> SweepSpec:
    """A sweep's settings; what is wrong is said with its key."""
    try:
        return SweepSpec.model_validate(dict(content))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            known = list(SweepSpec.model_fields)
            hint = nearest(key, known) or f". Possible here: {', '.join(known)}."
            raise OmgError(f"{shown}: unknown key '{key}'{hint}") from error
        told = expected(problem["type"], str(problem["msg"]))
        if not key:
            raise OmgError(f"{shown}: {told}.") from error
        option = key.replace("_", "-")
        raise OmgError(
            f"{shown}: {option}={problem['input']!r} is not possible. Expected: {told}."
        ) from error
