"""Which runs are seeds of one method: those that are equal in all that may change a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omg.config.loader import leaves
from omg.config.schema import marked
from omg.types import OmgError

# Keys that say where and how a run is kept, not what it learns.
ASIDE = marked(identity=False)
PLACES = marked(place=True)
MAX_NAMED = 3  # keys in a legend


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what does not matter to the result."""
    return {k: v for k, v in leaves(config) if k.partition(".")[0] not in ASIDE}


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that matter to the result and in which some configurations differ. A key that some lack
    because their version did not know it counts for nothing."""
    known = set.intersection(*(set(config) for config in configs)) if configs else set()
    found = [{k: _place(k, v, c) for k, v in settings(c).items()} for c in configs]
    keys = dict.fromkeys(k for one in found for k in one if k.partition(".")[0] in known)
    return [k for k in keys if any(one.get(k) != found[0].get(k) for one in found)]


def _place(key: str, value: Any, config: Mapping[str, Any]) -> Any:
    if key in PLACES and isinstance(value, str) and value:
        return str(Path(of_any_seed(value, config.get("seed"))).absolute())
    return value


def of_any_seed(place: str, seed: Any) -> str:
    """A place that ends in -s<seed> of the run that names it, for any seed: where every seed has
    its own prior, all have the same setting."""
    ending = f"-s{seed}"
    return f"{place.removesuffix(ending)}-s<seed>" if place.endswith(ending) else place


def distinguish(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that runs share only if they are seeds of one method: where runs of one name differ,
    what differs is named ("qmix, lr=0.001")."""
    result = list(names)
    for name in dict.fromkeys(names):
        rows = [i for i, other in enumerate(names) if other == name]
        keys = differing([configs[i] for i in rows])
        taken: dict[str, tuple[Any, ...]] = {}
        for i in rows if keys else ():
            found = settings(configs[i])
            values = tuple(repr(_place(k, found.get(k), configs[i])) for k in keys)
            words = [f"{k}={found.get(k, '–')}" for k in keys[:MAX_NAMED]]
            if len(keys) > MAX_NAMED:
                words.append(f"{len(keys) - MAX_NAMED} more")
            base = shown = ", ".join([name, *words])
            number = 2
            while taken.setdefault(shown, values) != values:  # they differ in the keys not named
                shown, number = f"{base} ({number})", number + 1
            result[i] = shown
    return result


def check_seeds(method: str, runs: Sequence[tuple[Path, Any]]) -> None:
    """A method's seeds must differ: one of them twice would count as two."""
    seen: dict[Any, Path] = {}
    for folder, seed in runs:
        other = seen.setdefault(seed, folder)
        if other is not folder:
            raise OmgError(
                f"{other} and {folder} are both '{method}' with seed {seed}. Leave one out, or "
                "give them different labels (label=…)."
            )
