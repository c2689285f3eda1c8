"""What the logged names mean to a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from omg.evaluation.crossplay_table import RENAMED
from omg.evaluation.words import BELIEF, HIT_RATIO, PREDICTION, TYPES


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's title, and what more or less of it means."""

    name: str
    title: str
    about: str = ""


TESTS = (
    Metric("test_own_return_mean", "Own return", "what the learning agent earns; higher is better"),
    Metric(
        "test_own_discounted_return_mean",
        "Own discounted return",
        "own rewards, later ones counted less, so being quick pays; higher is better",
    ),
    Metric("test_return_mean", "Team return", "what all players earn together; higher is better"),
    Metric("test_ep_length_mean", "Episode length", "steps until an episode ends; lower is better"),
    Metric("test_food_collected_mean", "Food collected", "share per episode; higher is better"),
    Metric("test_hit_ratio_mean", "Hit ratio", HIT_RATIO),
    Metric("test_belief_accuracy_mean", "Belief accuracy", BELIEF),
    Metric("test_prediction_accuracy_mean", "Prediction accuracy", PREDICTION),
    Metric("test_type_accuracy_mean", "Type accuracy", TYPES),
    Metric("test_battle_won_mean", "Win rate", "share of battles won; higher is better"),
    Metric("test_win_rate_mean", "Win rate", "share of games won; higher is better"),
)

LOSSES = (
    Metric("loss", "TD loss", "of the action values"),
    Metric("pg_loss", "Policy loss", "what the policy's gradient descends on"),
    Metric("critic_loss", "Critic loss", "of the values of actions (COMA)"),
    Metric("value_loss", "Value loss", "of the critic, in its own unit (PPO)"),
    Metric("entropy", "Entropy", "of the policy, in nats; near 0 it hardly explores"),
    Metric("td_error_abs", "TD error", "mean absolute difference of value and target"),
    Metric("am_loss", "Opponent model: loss", "all terms together"),
    Metric("am_recon", "Opponent model: reconstruction", "error of the decoder"),
    Metric(
        "am_kl", "Opponent model: KL", "distance of inference and prior; near 0 may be collapse"
    ),
    Metric("am_obs_loss", "Opponent model: observations", "error of the others' observations"),
    Metric("am_action_loss", "Opponent model: actions", "cross-entropy of the others' actions"),
    Metric("moa_loss", "MOA: loss", "cross-entropy of the others' actions, given their goals"),
    Metric("moa_accuracy", "MOA: accuracy", "share of the others' actions predicted"),
    Metric("am_accuracy", "Opponent model: accuracy", "share of the others' actions predicted"),
)

PRIORS = (
    Metric("prior_accuracy", "Prior: accuracy", "share of states whose players decode exactly"),
    Metric("prior_explained", "Prior: variance", "share of the players' variance that it explains"),
    Metric("prior_recon", "Prior: reconstruction", "error of the decoder"),
    Metric("prior_kl", "Prior: KL", "distance to the standard normal distribution"),
)

COLLAPSE = (
    Metric("am_active_dims", "Active dimensions", "share of subgoal dimensions that vary"),
    Metric(
        "am_posterior_std", "Posterior deviation", "near 1 and without active dimensions: unused"
    ),
)

NORMALISED = "higher is better; 0: random play, 1: the best response to each opponent"

# Of crossplay.json: short titles for columns.
PLAYED = (
    Metric("own_return", "Own return", "higher is better"),
    Metric("discounted_return", "Own discounted return", "higher is better"),
    Metric("ep_length", "Steps per episode", "lower is better"),
    Metric("food_collected", "Food collected", "higher is better"),
    Metric("hit_ratio", "Hit ratio", HIT_RATIO),
    Metric("belief_accuracy", "Belief accuracy", BELIEF),
    Metric("prediction_accuracy", "Prediction accuracy", PREDICTION),
    Metric("type_accuracy", "Type accuracy", TYPES),
    Metric("win_rate", "Win rate", "higher is better"),
    Metric("return", "Team return", "higher is better"),
    Metric("normalised_own_return", "Own return, normalised", NORMALISED),
    Metric("normalised_discounted_return", "Own discounted return, normalised", NORMALISED),
    Metric("normalised_win_rate", "Win rate, normalised", NORMALISED),
    Metric("permuted_own_return", "Own return, permuted", "the permutation test"),
    Metric("permuted_discounted_return", "Own discounted return, permuted", "the permutation test"),
    Metric("permuted_ep_length", "Steps per episode, permuted", "the permutation test"),
)
_ALL = {metric.name: metric for metric in (*TESTS, *LOSSES, *PRIORS, *COLLAPSE, *PLAYED)}


def describe(name: str) -> Metric:
    """A metric by its name; an unknown one is called by it."""
    plain = name.removeprefix("test_").removesuffix("_mean").replace("_", " ")
    return _ALL.get(name) or Metric(name, plain[:1].upper() + plain[1:])


def played_name(metric: str) -> str:
    """The name of a run's metric in `crossplay.json`."""
    plain = metric.removeprefix("test_").removesuffix("_mean")
    return RENAMED.get(plain, plain)


def logged_name(metric: str) -> str:
    """The name of a metric of `crossplay.json` in the runs' metrics."""
    plain = {played: logged for logged, played in RENAMED.items()}.get(metric, metric)
    return f"test_{plain}_mean"


def tested_metrics(known: Iterable[str], first: str) -> list[Metric]:
    """The tests' metrics there are, the chosen one first, then the known ones, then others."""
    there = [name for name in known if re.fullmatch(r"test_(?!agent_\d+_).*_mean", name)]
    order = {metric.name: rank for rank, metric in enumerate(TESTS)}
    there.sort(key=lambda name: (name != first, order.get(name, len(order)), name))
    if first in known and first not in there:
        there.insert(0, first)
    return [describe(name) for name in there]


def played_metrics(known: Iterable[str], first: str) -> list[Metric]:
    """The metrics of games there are, the chosen one first."""
    order = {metric.name: rank for rank, metric in enumerate(PLAYED)}
    names = sorted(set(known), key=lambda name: (name != first, order.get(name, 99), name))
    return [describe(name) for name in names]
