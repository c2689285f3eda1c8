"""MOA's networks: what one player expects another to do, given a goal. One network per ordered pair
of seats; all of them act in one batched call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.trajectories import SeatOrder
from omg.functional import UNAVAILABLE
from omg.modules.agents.stacked import Grouping
from omg.types import EnvSpec

TINY = 1e-30  # added to probabilities before their logarithm is taken


def masked_softmax(logits_A: Tensor, avail_A: Tensor) -> Tensor:
    """A distribution over the available actions; where none is, over all of them."""
    return logits_A.masked_fill(~avail_A, UNAVAILABLE).softmax(-1)


def cross_entropy(chances_A: Tensor, actions: Tensor) -> Tensor:
    """-Σ a·log(p + 1e-30) of one-hot actions a, in every row."""
    return -(chances_A.gather(-1, actions.unsqueeze(-1)).squeeze(-1) + TINY).log()


class PairNet(nn.Module):
    """π(a | o, t, g) of one other player: three layers over [observation | time | goal]."""

    def __init__(self, obs_dim: int, goal_dim: int, hidden_dim: int, n_actions: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(obs_dim + 1 + goal_dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, hidden_dim)
        self.fc3 = nn.Linear(hidden_dim, n_actions)

    def forward(self, obs: Tensor, time: Tensor, goal: Tensor, avail: Tensor) -> Tensor:
        """obs [R, O], time [R], goal [R, D], avail [R, A] -> a distribution over actions [R, A]."""
        hidden = torch.relu(self.fc1(torch.cat([obs, time.unsqueeze(-1), goal], -1)))
        return masked_softmax(self.fc3(torch.relu(self.fc2(hidden))), avail)


@dataclass(frozen=True, slots=True)
class Stack:
    """The weights of several pairs in one set of tensors, transposed: [M, in, out]."""

    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]
    fc3: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, nets: Sequence[PairNet]) -> Stack:
        """Gradients of the stack reach the networks."""

        def layer(pick: Callable[[PairNet], nn.Linear]) -> tuple[Tensor, Tensor]:
            layers = [pick(net) for net in nets]
            weight = torch.stack([linear.weight for linear in layers]).mT.contiguous()
            return weight, torch.stack([linear.bias for linear in layers])

        return cls(layer(lambda n: n.fc1), layer(lambda n: n.fc2), layer(lambda n: n.fc3))

    def logits(self, inputs_MBI: Tensor) -> Tensor:
        """Inputs of every pair's own network [M, B, I] -> [M, B, A]."""
        hidden = torch.relu(_batched(self.fc1, inputs_MBI))
        return _batched(self.fc3, torch.relu(_batched(self.fc2, hidden)))


def _batched(layer: tuple[Tensor, Tensor], inputs_MBI: Tensor) -> Tensor:
    weight, bias = layer
    return torch.baddbmm(bias.unsqueeze(1), inputs_MBI, weight)


@dataclass(frozen=True, slots=True)
class Gathered:
    """`Grouping` for `torch.export`: nothing is sorted, every row takes its own pair's weights."""

    pairs: Tensor

    def linear(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows = torch.baddbmm(bias[self.pairs].unsqueeze(1), inputs.unsqueeze(1), weight[self.pairs])
        return rows.squeeze(1)


class PairNets(nn.Module):
    """A `PairNet` for every ordered pair of seats. Pair me·(N-1) + k is the player in seat `me`
    and the k-th of the others as `SeatOrder` counts them."""

    def __init__(self, spec: EnvSpec, *, goal_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.order = SeatOrder(spec)
        self.n_others = spec.n_agents - 1
        self._obs_dim, self.goal_dim = spec.obs_dim, goal_dim
        self.nets = nn.ModuleList(
            PairNet(spec.obs_dim, goal_dim, hidden_dim, spec.n_actions)
            for _ in range(spec.n_agents * self.n_others)
        )
        self._weights: list[nn.Parameter] | None = None
        self._stacked: tuple[tuple[int, ...], Stack] | None = None
        self._kept: dict[int, tuple[Tensor, Grouping]] = {}

    def __len__(self) -> int:
        return len(self.nets)

    def names(self) -> list[str]:
        """The name of every pair's file: players are counted from 1, as in the note."""
        return [
            f"player_{pair // self.n_others + 1}_to_{other + 1}.pth"
            for pair, other in enumerate(self.order.others_of.flatten().tolist())
        ]

    def pairs_of(self, seats_R: Tensor) -> Tensor:
        """The pairs of players in these seats with each of the others, [R, N-1]."""
        return seats_R.unsqueeze(1) * self.n_others + torch.arange(
            self.n_others, device=seats_R.device
        )

    def members(self, pairs: Sequence[int]) -> list[PairNet]:
        """Some of the networks."""
        found = [self.nets[pair] for pair in pairs]
        return [net for net in found if isinstance(net, PairNet)]

    def each_goal(self, obs: Tensor, time: Tensor, avail: Tensor, seats: Tensor) -> Tensor:
        """obs [R, N-1, O], time [R], avail [R, N-1, A], seats [R] -> what each of the others does
        if it pursues goal g, for all goals at once: [R, N-1, G, A]. What is seen is computed once
        and shared by all goals."""
        stack, pairs = self._stack(), self.pairs_of(seats).flatten()
        rows, goals = len(pairs), self.goal_dim
        weight, bias = stack.fc1
        seen = self._group(pairs, 1).linear(
            self._seen(obs, time), weight[:, : self._obs_dim + 1], bias
        )
        hidden = torch.relu(seen.unsqueeze(1) + weight[:, self._obs_dim + 1 :][pairs])
        out = self._later(stack, self._group(pairs, goals), hidden.flatten(0, 1))
        chances = masked_softmax(out.view(rows, goals, -1), avail.flatten(0, 1).unsqueeze(1))
        return chances.view(len(seats), self.n_others, goals, -1)

    def given(
        self, obs: Tensor, time: Tensor, avail: Tensor, seats: Tensor, goal_RD: Tensor | None
    ) -> Tensor:
        """What each of the others does, given one goal vector per row (None: no goals), [R, N-1,
        A]."""
        stack, pairs = self._stack(), self.pairs_of(seats).flatten()
        inputs = self._seen(obs, time)
        if goal_RD is not None:
            inputs = torch.cat([inputs, goal_RD.repeat_interleave(self.n_others, 0)], -1)
        group = self._group(pairs, 1)
        hidden = torch.relu(group.linear(inputs, *stack.fc1))
        chances = masked_softmax(self._later(stack, group, hidden), avail.flatten(0, 1))
        return chances.view(len(seats), self.n_others, -1)

    def _seen(self, obs: Tensor, time: Tensor) -> Tensor:
        """[observation | time] of every row and other."""
        moments = time.view(-1, 1, 1).expand(-1, self.n_others, 1)
        return torch.cat([obs, moments], -1).flatten(0, 1)

    @staticmethod
    def _later(stack: Stack, group: Grouping | Gathered, hidden: Tensor) -> Tensor:
        return group.linear(torch.relu(group.linear(hidden, *stack.fc2)), *stack.fc3)

    def _stack(self) -> Stack:
        """All weights without gradient; made again only when one of them has changed."""
        if torch.compiler.is_compiling():
            return Stack.of(self.members(range(len(self))))
        if self._weights is None:
            self._weights = list(self.nets.parameters())
        if any(weight.is_inference() for weight in self._weights[:1]):  # changes are not counted
            return Stack.of(self.members(range(len(self))))
        versions = tuple([weight._version for weight in self._weights])
        if self._stacked is None or self._stacked[0] != versions:
            with torch.inference_mode(False), torch.no_grad():
                self._stacked = versions, Stack.of(self.members(range(len(self))))
        return self._stacked[1]

    def _group(self, pairs: Tensor, repeats: int) -> Grouping | Gathered:
        """Rows sorted by pair; kept while the seats stay, because they do for whole episodes."""
        if repeats > 1:
            pairs = pairs.repeat_interleave(repeats)
        if torch.compiler.is_compiling():
            return Gathered(pairs)
        kept = self._kept.get(repeats)
        if kept is None or kept[0].shape != pairs.shape or not torch.equal(kept[0], pairs):
            with torch.inference_mode(False):
                kept = pairs.clone(), Grouping.of(pairs.clone(), len(self))
            self._kept[repeats] = kept
        return kept[1]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PairNets:
        self._stacked = self._weights = None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self
