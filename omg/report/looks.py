"""What a method looks like: its colour and dashes say what kind of agent it is, on every chart.

A look is one number: the colour (0 to 15) plus 16 times the dashes. Two methods of a page never
share a look as long as there are no more than thirty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["subgoals", "model", "none", "told"]

COLOURS = 16
SOLID, DASHED, DOTTED, MIXED = range(4)
PLAIN = tuple(range(8))  # colours where the kind says nothing
PRIOR_COLOUR = 14  # the first colour of priors, which belong to no method
_FAMILIES: Mapping[Kind, tuple[tuple[int, ...], int]] = {
    "subgoals": ((0, 8, 5, 9), SOLID),  # blues
    "model": ((1, 2, 3, 4, 7), SOLID),  # warm and green
    "none": ((6, 10, 11), DASHED),  # greys
    "told": ((12, 13), DOTTED),  # black, olive
}
_KINDS: Mapping[str, Kind] = {
    "none_am": "none",
    "omg_am": "subgoals",
    "control_am": "told",
    "oracle_am": "told",
}
_WORDS: Mapping[Kind, str] = {
    "subgoals": "blue: infers subgoals",
    "model": "other solid lines: another opponent model",
    "none": "dashed grey: no opponent model",
    "told": "dotted: is told what others must infer",
}


def kind_of(am_model: str, moa_goal: Any = None) -> Kind:
    """What an agent knows about the others, from its `am_model`."""
    if am_model == "moa" and moa_goal == "subgoal":
        return "subgoals"
    return _KINDS.get(am_model, "model") if am_model else "none"


def nth_look(index: int) -> int:
    """The look of one among many that are told apart by nothing but their order."""
    return index % len(PLAIN) + COLOURS * (index // len(PLAIN) % 4)


def looks_of(kinds: Mapping[str, Kind]) -> dict[str, int]:
    """A look for every method; where all are of one kind, plain colours in their order."""
    if len(set(kinds.values())) < 2:
        return {method: nth_look(index) for index, method in enumerate(kinds)}
    looks: dict[str, int] = {}
    for method, kind in kinds.items():
        free = (look for look in _candidates(kind) if look not in looks.values())
        looks[method] = next(free, nth_look(len(looks)))
    return looks


def _candidates(kind: Kind) -> Iterator[int]:
    """The kind's colours with its dashes, then with others, then anything."""
    colours, dashes = _FAMILIES[kind]
    for style in (dashes, *(d for d in (MIXED, DOTTED, DASHED, SOLID) if d != dashes)):
        yield from (colour + COLOURS * style for colour in colours)
    yield from (look for look in range(4 * COLOURS) if look % COLOURS < PRIOR_COLOUR)


def explained_looks(kinds: Mapping[str, Kind]) -> str:
    """What colours and dashes mean, as a sentence; empty where they mean nothing."""
    there = set(kinds.values())
    if len(there) < 2:
        return ""
    words = "; ".join(text for kind, text in _WORDS.items() if kind in there)
    return f"{words[:1].upper()}{words[1:]}."


def look_class(look: int) -> str:
    """The classes of a look: its colour, and its dashes where it has any."""
    dashes = look // COLOURS % 4
    return f"c{look % COLOURS}" + (f" d{dashes}" if dashes else "")
