"""What the contract checks are made of: reproducible random play, and comparing what was seen."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from omg.envs.contract import BatchedEnv
from omg.envs.vector import BatchedEnvFactory
from omg.types import BoolArray, IntArray, Observation, TimeStep

View: TypeAlias = Observation | TimeStep

# Copies in most checks; enough for neighbours on both sides.
COPIES = 3


class Player:
    """Random available actions; those of a copy depend on that copy's number and masks only."""

    def __init__(self, seed: int, *, n_copies: int, first_copy: int = 0) -> None:
        copies = range(first_copy, first_copy + n_copies)
        self._generators = [np.random.default_rng([seed, copy]) for copy in copies]

    def act(self, avail: BoolArray) -> IntArray:
        """Actions [B, N] for masks [B, N, A]."""
        rows = zip(self._generators, avail, strict=True)
        wish = np.stack([generator.random(mask.shape) for generator, mask in rows])
        return np.asarray(np.where(avail, wish, -1.0).argmax(axis=-1), np.int64)

    def change_mind(self, copy: int) -> None:
        """From here on, other actions in this copy."""
        self._generators[copy] = np.random.default_rng([987654321, copy])


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The environment under test."""

    factory: BatchedEnvFactory
    steps: int
    seed: int

    @contextmanager
    def env(self, n_copies: int = COPIES, first_copy: int = 0) -> Iterator[BatchedEnv]:
        """A fresh environment, closed afterwards."""
        env = self.factory(n_copies=n_copies, first_copy=first_copy)
        try:
            yield env
        finally:
            env.close()

    def player(self, env: BatchedEnv, first_copy: int = 0) -> Player:
        """Always the same player for the same copies."""
        return Player(self.seed, n_copies=env.n_copies, first_copy=first_copy)

    def trace(self, n_copies: int = COPIES, first_copy: int = 0) -> list[View]:
        """The views of one run from `reset`."""
        with self.env(n_copies, first_copy) as env:
            player = self.player(env, first_copy)
            return play(env, env.reset(self.seed), player=player, steps=self.steps)


def play(env: BatchedEnv, first: View, *, player: Player, steps: int) -> list[View]:
    """`first` and what follows. Each view is copied when it comes, in case it changes later."""
    views = [copy.deepcopy(first)]
    for _ in range(steps):
        views.append(copy.deepcopy(env.step(player.act(views[-1].avail))))
    return views


def ended(step: TimeStep) -> BoolArray:
    """Which copies ended, [B]."""
    return step.terminated | step.truncated


def steps_of(views: Sequence[View]) -> Iterator[tuple[int, TimeStep]]:
    """The steps among the views, numbered by their place."""
    for at, view in enumerate(views):
        if isinstance(view, TimeStep):
            yield at, view


def require(condition: object, sentence: str) -> None:
    """Fail the running check with this sentence."""
    if not condition:
        raise AssertionError(sentence)


def difference(
    left: Sequence[View], right: Sequence[View], *, copies: Sequence[tuple[int, int]] | None = None
) -> str:
    """Where two runs first differ, in given pairs of copies or in all; empty when nowhere."""
    for at, (one, other) in enumerate(zip(left, right, strict=True)):
        pairs = copies or [(b, b) for b in range(len(one.obs))]
        for b, c in pairs:
            mine, theirs = _row(one, b), _row(other, c)
            for key in [key for key in mine if key in theirs]:
                if not np.array_equal(mine[key], theirs[key], equal_nan=True):
                    return f"{key} of copy {b} at step {at}"
            if len(mine) != len(theirs) and type(one) is type(other):
                return f"the presence of a final observation of copy {b} at step {at}"
    return ""


def _row(view: View, b: int) -> dict[str, Any]:
    """Everything one copy saw in one step."""
    row: dict[str, Any] = {"obs": view.obs[b], "state": view.state[b], "avail": view.avail[b]}
    row |= {} if view.alive is None else {"alive": view.alive[b]}
    if isinstance(view, TimeStep):
        row |= {} if view.reached is None else {"reached": view.reached[b]}
        row |= {"reward": view.reward[b], "terminated": view.terminated[b]}
        row |= {"truncated": view.truncated[b]}
        if ended(view)[b]:
            row |= {name: np.float64(values[b]) for name, values in view.info.items()}
        if view.final is not None and b in view.final.copies:
            at = int(np.flatnonzero(view.final.copies == b)[0])
            row |= {"final obs": view.final.obs[at], "final state": view.final.state[at]}
            row |= {"final avail": view.final.avail[at]}
            row |= {} if view.final.alive is None else {"final alive": view.final.alive[at]}
    return row
