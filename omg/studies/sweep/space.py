"""Search spaces: what `key=grid:…`, `key=loguniform:…` and the like stand for."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omg.config.arguments import parse_value
from omg.registry import nearest
from omg.types import OmgError

LISTS = ("grid", "choice")
RANGES = ("uniform", "loguniform", "randint", "lograndint")
KINDS = (*LISTS, *RANGES)
_WHOLE = ("randint", "lograndint")
MOST_LISTED = 100_000  # combinations; from more of them it is drawn without a list


@dataclass(frozen=True, slots=True)
class Dimension:
    """The values that one key may have: a list (`grid`: each of them is tried; `choice`: drawn
    from), or a range with both ends included."""

    key: str
    kind: str
    values: tuple[Any, ...]

    @property
    def is_list(self) -> bool:
        return self.kind in LISTS

    @property
    def is_log(self) -> bool:
        return self.kind in ("loguniform", "lograndint")

    @property
    def is_whole(self) -> bool:
        return self.kind in _WHOLE

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the way through."""
        if self.is_list:
            return self.values[int(share * len(self.values))]
        low, high = self.values
        if self.is_whole:
            high += 1
        if self.is_log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        if self.is_whole:
            return min(int(value), self.values[1])
        return float(f"{value:.4g}") if low < float(f"{value:.4g}") < high else value

    def written(self) -> str:
        """As it stands on a command line."""
        return f"{self.key}={self.kind}:{','.join(map(str, self.values))}"


def is_space(word: str) -> bool:
    """Whether a word of the command line is `key=kind:values`, however the kind is spelt."""
    if "=" not in word:
        return False
    text = word.partition("=")[2]
    kind, colon, _ = text.partition(":")
    return bool(colon) and (kind in KINDS or (not word.startswith("-") and kind.isidentifier()))


def read_word(word: str) -> Dimension:
    """`key=kind:a,b,…`; two dashes in front are allowed."""
    key, _, text = word.removeprefix("--").partition("=")
    return read_dimension(key.strip().replace("-", "_"), text)


def read_dimension(key: str, content: Any) -> Dimension:
    """A dimension as a command line writes it, or a YAML file: `grid: [a, b]`, or a list."""
    if isinstance(content, str):
        kind, colon, text = content.partition(":")
        values: Any = _split(text) if colon else None
    elif isinstance(content, Mapping) and len(content) == 1:
        ((kind, values),) = content.items()
    elif isinstance(content, list):
        kind, values = "grid", content
    else:
        kind, values = str(content), None
    if kind not in KINDS or not isinstance(values, list):
        hint = nearest(str(kind), KINDS) or "."
        raise OmgError(
            f"{key}={_short(content)} is not a search space{hint} Write {key}=<kind>:<values>; "
            f"kinds: {', '.join(KINDS)}."
        )
    read = [parse_value(value) if isinstance(value, str) else value for value in values]
    return _checked(Dimension(key, str(kind), tuple(read)))  # YAML reads 1e-3 as a text


def _short(content: Any) -> str:
    shown = str(content)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def _split(text: str) -> list[Any]:
    """Values between commas that stand outside of brackets and quotes."""
    if not text.strip():
        return []
    try:
        found = ast.literal_eval(f"[{text}]")
        if isinstance(found, list):
            return found
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    return [parse_value(part.strip()) for part in text.split(",")]


def _checked(dimension: Dimension) -> Dimension:
    key, kind, values = dimension.key, dimension.kind, dimension.values
    if not key:
        raise OmgError(f"'={kind}:…' has no key before '='. Write key={kind}:<values>.")
    if dimension.is_list:
        if not values or "" in values:
            raise OmgError(f"{key}={kind}: is empty. Give at least one value: {key}={kind}:a,b.")
        twice = [v for i, v in enumerate(values) if any(_same(v, w) for w in values[:i])]
        if twice:
            raise OmgError(f"{key}={kind}: has {twice[0]} twice. Keep one of them.")
        return dimension
    wanted = int if dimension.is_whole else (int, float)
    numbers = [v for v in values if isinstance(v, wanted) and not isinstance(v, bool)]
    if len(values) != 2 or len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        what = "two whole numbers" if dimension.is_whole else "two numbers"
        raise OmgError(
            f"{dimension.written()} is not possible. Give {what}: {key}={kind}:<low>,<high>."
        )
    if not values[0] < values[1]:
        raise OmgError(f"{dimension.written()} is empty. Give the lower end first.")
    if dimension.is_log and values[0] <= 0:
        raise OmgError(f"{dimension.written()} has no logarithm. Begin above 0, or use uniform.")
    return dimension


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def size_of(dimensions: Sequence[Dimension]) -> int:
    """How many combinations lists have."""
    return math.prod(len(dimension.values) for dimension in dimensions)


def combinations(dimensions: Sequence[Dimension]) -> list[dict[str, Any]]:
    """Every combination of the values of lists, the last key changing first."""
    found: list[dict[str, Any]] = [{}]
    for dimension in dimensions:
        found = [{**one, dimension.key: value} for one in found for value in dimension.values]
    return found


def draws(
    dimensions: Sequence[Dimension], count: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """`count` different combinations, drawn; fewer where there are fewer. A draw does not depend
    on how many follow."""
    if not dimensions:
        return [{}]
    if all(d.is_list for d in dimensions) and size_of(dimensions) <= MOST_LISTED:
        every = combinations(dimensions)
        return [every[i] for i in rng.permutation(len(every))[:count]]
    found: list[dict[str, Any]] = []
    for _ in range(50 * count):
        one = {d.key: d.at(float(rng.random())) for d in dimensions}
        if one not in found:
            found.append(one)
        if len(found) == count:
            break
    return found


def corners(dimensions: Iterable[Dimension]) -> list[dict[str, Any]]:
    """Settings that together hold every listed value and both ends of every range."""
    dimensions = list(dimensions)
    most = max((len(d.values) for d in dimensions), default=0)
    pick: Callable[[Dimension, int], Any] = lambda d, i: d.values[min(i, len(d.values) - 1)]  # noqa: E731
    return [{d.key: pick(d, i) for d in dimensions} for i in range(most)]
