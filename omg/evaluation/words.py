"""How results are called and written, in a terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# What the sides of a pool are called wherever people read of them.
SIDES = {"train": "seen", "validation": "validation", "heldout": "unseen"}
# How an agent acted: by its best action, or as in training.
ACTED = {True: "greedily", False: "as in training (sampled or exploring)"}
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


LINEUPS = (
    "Line-up: homologue, one member takes all other seats; mixed, every other seat is drawn from "
    "all members of the side."
)
HIT_RATIO = (
    "states that the agent inferred and the opponents were in later, as a share of the states of "
    "an episode; a place one step ahead is easy to hit, so read it beside the chosen k"
)

BELIEF = "share of moments at which the goal believed likeliest is the one reached next (MOA)"
PREDICTION = "share of the others' actions that were the likeliest (MOA)"

TYPES = "share of moments at which the training opponent believed likeliest is the one met (types)"
# Metrics whose names do not say what they are.
_EXPLAINED = {
    "hit_ratio": HIT_RATIO,
    "belief_accuracy": BELIEF,
    "prediction_accuracy": PREDICTION,
    "type_accuracy": TYPES,
}


def explained(metrics: Iterable[str]) -> list[str]:
    """A sentence for every metric, by its name in games or in tests, that needs one."""
    names = [name.removeprefix("test_").removesuffix("_mean") for name in metrics]
    return [
        f"{spoken(name).capitalize()}: {about}."
        for name, about in _EXPLAINED.items()
        if name in names
    ]


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


def acting_words(acted: Iterable[tuple[str, bool]]) -> str:
    """How some players, by name, acted (greedily or not), as a sentence."""
    pairs = dict.fromkeys(acted)
    ways = [greedy for greedy in (True, False) if greedy in {how for _, how in pairs}]
    if len(ways) == 1:
        return f"Agents acted {ACTED[ways[0]]}."
    told = [f"{ACTED[way]}: {', '.join(who for who, how in pairs if how == way)}" for way in ways]
    return f"Agents acted {'; '.join(told)}."


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
