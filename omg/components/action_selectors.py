"""Schedules of exploration, and from an agent's outputs to actions. An unavailable action is never
chosen."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from omg.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayThenFlat:
    """From `start` to `finish` over `time_length` steps, flat afterwards."""

    start: float
    finish: float
    time_length: int
    decay: Literal["linear", "exp"] = "linear"

    def __call__(self, env_steps: int) -> float:
        if self.decay == "linear":
            share = min(1.0, env_steps / self.time_length)
            return self.start + share * (self.finish - self.start)
        # e^(-t/scaling), scaled so that it meets `finish` at time_length.
        floor = max(self.finish, 1e-12)
        rate = math.log(max(self.start, floor) / floor) / self.time_length
        return min(self.start, max(self.finish, self.start * math.exp(-rate * env_steps)))


@runtime_checkable
class ActionSelector(Protocol):
    """Chooses one action per row; `env_steps` drives the schedule, `greedy` switches it off."""

    def __init__(
        self, *, epsilon: DecayThenFlat, temperature: float, mask_before_softmax: bool
    ) -> None: ...

    def select(
        self,
        outputs: Tensor,
        avail: Tensor,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Tensor: ...

    def metrics(self, env_steps: int) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class Mixture:
    """How outputs become probabilities: softmax(outputs / temperature) and, with probability
    `share`, a uniform choice; masked after both, or before."""

    temperature: float = 1.0
    share: float = 0.0
    mask_after: bool = False

    def __call__(self, outputs: Tensor, avail: Tensor) -> Tensor:
        """(1 - share) softmax + share / available actions, zero where unavailable. Masked before
        the softmax, unavailable actions take no part in it; masked after it, the softmax and the
        share run over all actions and what is left of the available ones is rescaled."""
        logits, share = outputs / self.temperature, self.share
        if not self.mask_after or share == 0.0:  # without a share the order makes no difference
            soft = logits.masked_fill(~avail, -torch.inf).softmax(-1)
            if share == 0.0:
                return soft
            return (1 - share) * soft + share * avail / avail.sum(-1, keepdim=True)
        mixed = (1 - share) * logits.softmax(-1) + share / outputs.shape[-1]
        left = mixed.masked_fill(~avail, 0.0)
        return left / left.sum(-1, keepdim=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """How one action per row is chosen, in numbers: the best, the best but with probability
    `epsilon` a uniformly random one, or a sample of the mixture."""

    how: Literal["best", "epsilon", "sample"]
    epsilon: float = 0.0
    mixture: Mixture = Mixture()

    def draws(
        self, avail: Tensor, generator: torch.Generator
    ) -> tuple[Tensor | None, Tensor | None]:
        """The random numbers it takes: one per row, and one per row and action."""
        if self.how == "best":
            return None, None
        if self.how == "epsilon":
            device = avail.device
            chances = torch.rand(avail.shape[:-1], generator=generator, device=device)
            return chances, torch.rand(avail.shape, generator=generator, device=device)
        race = torch.empty(avail.shape, device=avail.device)
        return None, race.exponential_(generator=generator)

    def __call__(self, outputs: Tensor, avail: Tensor, generator: torch.Generator) -> Tensor:
        """Actions [...] of outputs [..., A]. The largest of independent random keys is a uniform
        choice; the largest p_a / E_a of exponential E_a has distribution p; p = 0 never wins."""
        chances, draws = self.draws(avail, generator)
        if self.how == "sample":
            assert draws is not None
            return (self.mixture(outputs, avail) / draws).argmax(-1)
        best = outputs.masked_fill(~avail, -torch.inf).argmax(-1)
        if chances is None or draws is None:
            return best
        other = draws.masked_fill(~avail, -1.0).argmax(-1)
        return torch.where(chances < self.epsilon, other, best)


class Exploring(ABC):
    """Takes the best action where it shall be greedy, and explores otherwise."""

    def __init__(
        self,
        *,
        epsilon: DecayThenFlat,
        temperature: float = 1.0,
        mask_before_softmax: bool = True,
    ) -> None:
        self.epsilon = epsilon
        self.temperature = temperature
        self._mask_first = mask_before_softmax

    def select(
        self,
        outputs: Tensor,
        avail: Tensor,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Tensor:
        if greedy:
            return Choice("best")(outputs, avail, generator)
        return self._explore(outputs, avail, env_steps, generator)

    def choice(self, env_steps: int, *, greedy: bool) -> Choice | None:
        """What `select` does, in numbers; None where a subclass does something else."""
        if type(self).select is not Exploring.select:
            return None
        return Choice("best") if greedy else self._exploration(env_steps)

    @abstractmethod
    def _explore(
        self, outputs: Tensor, avail: Tensor, env_steps: int, generator: torch.Generator
    ) -> Tensor:
        """Actions of training."""

    def _exploration(self, env_steps: int) -> Choice | None:
        """The same in numbers; None where they do not say it."""
        return None

    def metrics(self, env_steps: int) -> dict[str, float]:
        return {"epsilon": self.epsilon(env_steps)}


class EpsilonGreedy(Exploring):
    """The best action, or with probability ε a uniformly random one."""

    def _explore(
        self, outputs: Tensor, avail: Tensor, env_steps: int, generator: torch.Generator
    ) -> Tensor:
        return Choice("epsilon", self.epsilon(env_steps))(outputs, avail, generator)

    def _exploration(self, env_steps: int) -> Choice | None:
        own = type(self)._explore is EpsilonGreedy._explore
        return Choice("epsilon", self.epsilon(env_steps)) if own else None


class Multinomial(Exploring):
    """Samples softmax(outputs / temperature) mixed with an ε share of the uniform choice."""

    def probabilities(self, outputs: Tensor, avail: Tensor, *, env_steps: int) -> Tensor:
        """By which it samples; zero where unavailable."""
        return self._mixture(env_steps)(outputs, avail)

    def mixture(self, env_steps: int) -> Mixture | None:
        """The numbers behind `probabilities`; None where a subclass computes them otherwise."""
        own = type(self).probabilities is Multinomial.probabilities
        return self._mixture(env_steps) if own else None

    def _mixture(self, env_steps: int) -> Mixture:
        return Mixture(self.temperature, self._floor(env_steps), not self._mask_first)

    def _floor(self, env_steps: int) -> float:
        return self.epsilon(env_steps)

    def _explore(
        self, outputs: Tensor, avail: Tensor, env_steps: int, generator: torch.Generator
    ) -> Tensor:
        """An exponential race: argmax of p_a / E_a has distribution p; p = 0 never wins."""
        chances = self.probabilities(outputs, avail, env_steps=env_steps)
        race = torch.empty_like(chances).exponential_(generator=generator)
        return (chances / race).argmax(-1)

    def _exploration(self, env_steps: int) -> Choice | None:
        mixture = self.mixture(env_steps)
        if mixture is None or type(self)._explore is not Multinomial._explore:
            return None
        return Choice("sample", mixture=mixture)


class SoftPolicies(Multinomial):
    """Samples softmax(outputs / temperature) itself: no ε share."""

    def _floor(self, env_steps: int) -> float:
        return 0.0

    def metrics(self, env_steps: int) -> dict[str, float]:
        return {}


SELECTORS: Registry[type[ActionSelector]] = Registry(
    "action selector",
    {
        "epsilon_greedy": "omg.components.action_selectors:EpsilonGreedy",
        "multinomial": "omg.components.action_selectors:Multinomial",
        "soft_policies": "omg.components.action_selectors:SoftPolicies",
    },
    base=ActionSelector,
)
