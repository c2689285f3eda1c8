"""How results are called and written, in a terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# What the sides of a pool are called wherever people read of them.
SIDES = {"train": "seen", "validation": "validation", "heldout": "unseen"}
_SPOKEN = {"return": "team return", "discounted_return": "own discounted return"}

PERMUTATION = (
    "The same episodes again, but the agent is fed what it inferred in another episode: if its "
    "result does not get worse, it does not use what it infers."
)
NO_INTERVAL = "Fewer than three seeds have no interval, so each seed is shown."
ONE_SEED = "There is one seed: the numbers describe this run only."
FIXED = (
    "The opponents are a fixed set: each seed counts by its mean over them, and an interval speaks "
    "about other seeds, not about other opponents."
)


def spoken(metric: str) -> str:
    """A metric of cross-play in words, which say whose return it is."""
    for kind in ("permuted", "normalised"):
        if metric.startswith(f"{kind}_"):
            return f"{spoken(metric.removeprefix(f'{kind}_'))}, {kind}"
    return _SPOKEN.get(metric, metric.replace("_", " "))


def spoken_log(metric: str) -> str:
    """A metric of metrics.jsonl in words."""
    plain = metric.removeprefix("test_")
    words = spoken(plain.removesuffix("_mean"))
    return words if plain == metric else f"{words} in tests"


def value_words(row: Mapping[str, Any], value: str = "mean", *, sign: bool = False) -> str:
    """A value with its interval, or with its seeds where they are too few for one. `value` names
    the value among `mean`, `mean_low` … or `difference`, `low` …"""
    prefix = "mean_" if value == "mean" else ""
    form = "+.3f" if sign else ".3f"
    low, high = row.get(f"{prefix}low"), row.get(f"{prefix}high")
    if low is not None and high is not None:
        return f"{row[value]:{form}} [{low:{form}}, {high:{form}}]"
    seeds: Sequence[float] = row.get("seeds") or ()
    each = f" (seeds {', '.join(f'{seed:{form}}' for seed in seeds)})" if len(seeds) > 1 else ""
    return f"{row[value]:{form}}{each}"


def seed_notes(counts: Sequence[int]) -> list[str]:
    """What a reader of intervals over so many seeds per method should know."""
    notes = [ONE_SEED] if counts and max(counts) == 1 else []
    if not notes and counts and min(counts) < 3:
        notes.append(NO_INTERVAL)
    return notes
