"""What a pipeline consists of: steps with their commands and settings, in order. Nested settings
become the words of a command line, and back."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from omg.config.arguments import Arguments, parse_value
from omg.config.loader import masked, read_yaml
from omg.config.schema import ALIASES, Config, mark_of, marked
from omg.studies.spec import PipelineSpec
from omg.types import OmgError

# What may differ between two calls: it changes what is shown and recorded, not the result.
FREE = marked(result=False)
# Where things lie; what lies there is known by the fingerprints of the steps that made it.
PLACES = marked(place=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to be done, by one command (the pool: several)."""

    key: str  # e.g. "agents/omg_tuned-s1"; also its place under the pipeline's folder
    stage: str
    kind: Literal["train", "pool", "command"]
    commands: tuple[tuple[str, ...], ...]  # the words behind `omg`
    settings: Mapping[str, Any]  # all that decides its result, beside `needs`
    needs: tuple[str, ...] = ()
    output: Path  # it is there when the step is done
    leaves: tuple[str, ...] = ()  # patterns of further files it makes, under the folder
    free_words: tuple[str, ...] = ()  # a resumed run takes these along
    places: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 1  # how many it keeps busy
    spreads: bool = False  # its command takes --jobs
    by_hand: bool = False  # a table of what the others made, which may be made by hand as well

    @property
    def name(self) -> str:
        return self.key.partition("/")[2] or self.key

    def shown(self) -> list[str]:
        """The commands as a user could type them."""
        return [masked(shlex.join(["omg", *words])) for words in self.commands]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps, each behind those it needs."""

    name: str
    env_config: str
    out: Path
    steps: tuple[Step, ...]
    spec: PipelineSpec | None = None  # of a study's file
    text: str = ""  # of that file
    parts: Mapping[str, str] = field(default_factory=dict)  # what it means, see `omg.studies.named`
    title: str = ""

    def stages(self) -> list[str]:
        """Their stages, in order."""
        return list(dict.fromkeys(step.stage for step in self.steps))

    def of_stage(self, stage: str) -> list[Step]:
        return [step for step in self.steps if step.stage == stage]

    def only(self, patterns: Sequence[str]) -> Plan:
        """The steps whose keys match one of the patterns, and what they need."""
        keys = [step.key for step in self.steps]
        found = {pattern: fnmatch.filter(keys, pattern) for pattern in patterns}
        for pattern, matching in found.items():
            if not matching:
                raise OmgError(
                    f"--only={pattern} matches no step of {self.name}. Its steps are named like "
                    f"{', '.join(self.of_stage(stage)[0].key for stage in self.stages())}; all of "
                    "them: --dry-run."
                )
        return self.until(*(key for matching in found.values() for key in matching))

    def until(self, *keys: str) -> Plan:
        """These steps and the part of the plan that they need."""
        needs = {step.key: step.needs for step in self.steps}
        wanted: set[str] = set()
        waiting = [*keys]
        while waiting:
            wanted.add(now := waiting.pop())
            waiting += [need for need in needs[now] if need not in wanted]
        return replace(self, steps=tuple(step for step in self.steps if step.key in wanted))

    def fingerprints(self) -> dict[str, str]:
        """A hash per step of its settings and of the fingerprints it depends on."""
        found: dict[str, str] = {}
        for step in self.steps:
            content = {"settings": step.settings, "needs": {k: found[k] for k in step.needs}}
            text = json.dumps(content, sort_keys=True)
            found[step.key] = hashlib.sha256(text.encode()).hexdigest()[:32]
        return found


def training_step(
    key: str,
    words: Sequence[str],
    config: Config,
    *,
    out: Path,
    seed: int,
    free: Mapping[str, Any],
    places: Mapping[str, str] | None = None,
    needs: Sequence[str] = (),
    after: Sequence[str] = (),
    ignored: Set[str] = FREE | PLACES,
) -> Step:
    """One `omg train` with these words, into `out`/`key`. `free`: settings of which a resumed run
    takes those along that change no result; `after`: words that come last; `ignored`: keys that
    are no part of what decides the result."""
    folder = out / key
    lies = {"local_results_path": str(folder.parent), "run_name": folder.name}
    own = to_words({"seed": seed, **(places or {}), **lies})
    kept = {k: v for k, v in config.as_dict().items() if k not in ignored}
    return Step(
        key=key,
        stage=key.partition("/")[0] if "/" in key else "runs",
        kind="train",
        commands=(("train", *words, *own, *after),),
        settings={**kept, "seed": seed},
        needs=tuple(needs),
        output=folder,
        free_words=tuple(to_words({k: v for k, v in free.items() if k in FREE})),
        places=dict(places or {}),
        cpus=cpus_of(config),
    )


def cpus_of(config: Config) -> int:
    """How many CPUs a training run keeps busy: its threads, its workers, a collector."""
    workers = (config.n_workers or 1) if config.runner == "parallel" else 0
    return max(1, config.torch_threads) + workers + (config.collect_ahead > 0)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings merged recursively, later ones winning; names of other code bases become ours."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            _merge(result, ALIASES.get(key, key), value)
    return result


def _merge(into: dict[str, Any], key: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        into[key] = value
        return
    inner = dict(into[key]) if isinstance(into.get(key), Mapping) else {}
    for inner_key, inner_value in value.items():
        _merge(inner, inner_key, inner_value)
    into[key] = inner


def settings_of(arguments: Arguments) -> dict[str, Any]:
    """The keys of a command line as nested settings."""
    layers: list[Mapping[str, Any]] = [read_yaml(Path(name), name) for name in arguments.files]
    for update in arguments.updates:
        value: Any = update.value
        for part in reversed(update.path.split(".")):
            value = {part: value}
        layers.append(value)
    return merged(*layers)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted keys as nested ones."""
    layers: list[Mapping[str, Any]] = []
    for path, value in flat.items():
        layer: Any = value
        for part in reversed(path.split(".")):
            layer = {part: layer}
        layers.append(layer)
    return merged(*layers)


def without(settings: Mapping[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Nested settings without some dotted keys."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        inner = [path.removeprefix(f"{key}.") for path in paths if path.startswith(f"{key}.")]
        if key not in paths:
            kept[key] = without(value, inner) if inner and isinstance(value, Mapping) else value
    return kept


def to_words(settings: Mapping[str, Any]) -> list[str]:
    """`--key=value` for every value; `omg train` reads exactly these settings from them."""
    return [f"--{key}={_text(value)}" for key, value in _leaves(settings)]


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        simple = isinstance(value, Mapping) and value and all(map(_is_simple, value))
        if simple:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_simple(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _text(value: Any) -> str:
    """As it is where a command line gives it back unchanged, else quoted as in Python."""
    if isinstance(value, str):
        return value if parse_value(value.strip()) == value else repr(value)
    return repr(value)


def refuse_reserved(settings: Mapping[str, Any], where: str) -> None:
    """Refuse settings that a study makes itself."""
    for key in Config.model_fields.keys() & settings.keys():
        if advice := mark_of(key).study:
            raise OmgError(f"{where}: '{key}' is set by the pipeline. {advice}.")
