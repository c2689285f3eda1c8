"""Several agent networks of one architecture as one; each row names the member it is for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from omg.modules.agents.networks import AgentNetwork, IndividualRNNAgent, MLPAgent, RNNAgent
from omg.modules.kernels.stacked import stacked_kernel
from omg.types import IntArray

# Costs in rows of arithmetic, fitted to step_rows at hidden 64 (512 rows, 64 members): one member
# computed by itself, whose calls cost more than its sums; one member's weights read for the grid.
_LOOP_COST = 32
_GRID_COST = 5


def _grid_width(counts: IntArray) -> int:
    """Rows per member in the grid: the cheapest width, 0 for no grid at all. Rows above the width
    cost a product of their own, so one busy member cannot blow up everybody's padding."""
    members = len(counts)
    widths = np.sort(counts)
    over = np.arange(members - 1, -1, -1)
    excess = widths.sum() - widths.cumsum() - over * widths
    costs = members * (widths + _GRID_COST) + excess + _LOOP_COST * over
    best = costs.argmin()
    alone = widths.sum() + _LOOP_COST * np.count_nonzero(counts)
    return int(widths[best]) if costs[best] < alone else 0


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows sorted by member: a grid of `width` places for each of K members, then what did not
    fit, member by member. R rows become P places. `only` is the member all rows are for, if any;
    then nothing is sorted."""

    width: int
    rows: Tensor  # [P], the row at each place; any row where the grid has a gap
    places: Tensor  # [R], the place of each row
    members: Tensor  # [P], the member of each place
    spans: tuple[tuple[int, int, int], ...]  # member, first place, end: beyond the grid
    only: int | None = None

    @classmethod
    def of(cls, members: Tensor, n_members: int) -> Grouping:
        who: IntArray = members.cpu().numpy()
        if not len(who):
            return cls(0, members, members, members, ())
        if who.min() < 0 or who.max() >= n_members:
            raise IndexError(f"a row is for none of the {n_members} members")
        counts = np.bincount(who, minlength=n_members)
        if counts[who[0]] == len(who):
            return cls(0, members[:0], members[:0], members[:0], (), only=int(who[0]))
        width = _grid_width(counts)
        grid = n_members * width
        order = np.argsort(who, kind="stable")
        who = who[order]
        excess = np.maximum(counts - width, 0)
        ends = grid + excess.cumsum()
        rank = np.arange(len(who)) - (counts.cumsum() - counts)[who]
        place = np.where(rank < width, who * width + rank, (ends - counts)[who] + rank)
        rows, owners = np.zeros((2, int(ends[-1])), np.int64)
        owners[:grid] = np.repeat(np.arange(n_members), width)
        places = np.empty_like(order)
        rows[place], owners[place], places[order] = order, who, place
        busy = np.flatnonzero(excess)
        starts = (ends - excess)[busy]
        spans = zip(busy.tolist(), starts.tolist(), ends[busy].tolist(), strict=True)
        rows_P, places_R, members_P = (
            torch.from_numpy(array).to(members.device) for array in (rows, places, owners)
        )
        return cls(width, rows_P, places_R, members_P, tuple(spans))

    def linear(self, inputs_RI: Tensor, weight_KIO: Tensor, bias_KO: Tensor) -> Tensor:
        """Each row times the weight of its member, plus the bias: [R, O]."""
        if self.only is not None:
            return torch.addmm(bias_KO[self.only], inputs_RI, weight_KIO[self.only])
        inputs = inputs_RI.index_select(0, self.rows)
        out = bias_KO.index_select(0, self.members)
        members, grid = len(weight_KIO), len(weight_KIO) * self.width
        if grid:
            padded = inputs[:grid].view(members, self.width, -1)
            out[:grid].view(members, self.width, -1).baddbmm_(padded, weight_KIO)
        for member, start, end in self.spans:
            out[start:end].addmm_(inputs[start:end], weight_KIO[member])
        return out.index_select(0, self.places)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and torch.equal(a, b)


class StackedAgents(nn.Module):
    """K networks in one set of tensors, [K, …]; weights are kept transposed, [K, in, out]. Frozen
    unless `trainable`. A row's output is that of its member's network."""

    carry_dim: int
    n_members: int
    n_actions: int

    def __init__(self, networks: Sequence[AgentNetwork], *, trainable: bool = False) -> None:
        super().__init__()
        states = [network.state_dict() for network in networks]
        shapes = [{key: value.shape for key, value in state.items()} for state in states]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError("networks of different shapes cannot be stacked")
        self.n_members = self._n_stacked = len(networks)
        self.carry_dim = networks[0].carry_dim
        self._trainable = trainable
        self._keys = tuple(states[0])
        self._grouped: tuple[Tensor, Grouping] | None = None
        for key in self._keys:
            value = torch.stack(
                [state[key].mT if state[key].ndim == 2 else state[key] for state in states]
            )
            if trainable:
                self.register_parameter(key.replace(".", "__"), nn.Parameter(value))
            else:
                self.register_buffer(key.replace(".", "__"), value)

    @staticmethod
    def from_networks(
        networks: Sequence[AgentNetwork], *, trainable: bool = False
    ) -> StackedAgents:
        """Copies of these networks, all of one class and of equal shapes."""
        kinds = {type(network) for network in networks}
        stack = _STACKS.get(kinds.pop()) if len(kinds) == 1 else None
        if stack is None:
            raise ValueError(
                "only networks of one class can be stacked, and only "
                + " or ".join(kind.__name__ for kind in _STACKS)
            )
        return stack(networks, trainable=trainable)

    def members_state(self, member: int) -> dict[str, Tensor]:
        """A copy of the member's weights, as its own network's `state_dict` has them."""
        values = {key: self._get(key)[member].detach() for key in self._keys}
        return {
            key: (value.mT if value.ndim == 2 else value).clone(
                memory_format=torch.contiguous_format
            )
            for key, value in values.items()
        }

    def group(self, members: Tensor) -> Grouping:
        """members [R] (int64) sorted for torch; kept until other members are asked for, because
        a line-up stays for whole episodes."""
        if self._grouped is None or not _same(self._grouped[0], members):
            with torch.inference_mode(False):  # a later pass may need gradients
                self._grouped = members.clone(), Grouping.of(members.clone(), self._n_stacked)
        return self._grouped[1]

    def step_rows(
        self, inputs: Tensor, members: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """inputs [R, I], members [R] (int64), carry [R, carry_dim] -> outputs [R, A], carry. Only
        members that differ by seat need `seats` [R]."""
        if not len(inputs):
            return inputs.new_zeros(0, self.n_actions), carry
        return self._step_members(inputs, members, carry)

    def _step_members(
        self, inputs: Tensor, members: Tensor, carry: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._step(self.group(members), inputs, carry)

    @abstractmethod
    def _step(self, group: Grouping, inputs: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        """The network's own `step`, with `group.linear` in place of linear layers."""

    def _get(self, key: str) -> Tensor:
        return cast(Tensor, getattr(self, key.replace(".", "__")))

    def _linear(self, group: Grouping, name: str, inputs: Tensor, part: str = "") -> Tensor:
        weight, bias = self._get(f"{name}.weight{part}"), self._get(f"{name}.bias{part}")
        return group.linear(inputs, weight, bias)

    def _head(self, group: Grouping, name: str, hidden: Tensor) -> Tensor:
        """`ActionHead`."""
        out = self._linear(group, name, hidden)
        if f"{name}.value.weight" not in self._keys:
            return out
        value = self._linear(group, f"{name}.value", hidden)
        return value + out - out.mean(-1, keepdim=True)


class StackedRNN(StackedAgents):
    """Stacked `RNNAgent`s. Frozen ones are stepped by the compiled kernel where it can be used."""

    def __init__(self, networks: Sequence[AgentNetwork], *, trainable: bool = False) -> None:
        super().__init__(networks, trainable=trainable)
        self.n_actions = self._get("fc2.bias").shape[-1]
        self._packed: Tensor | None = None

    def _step_members(
        self, inputs: Tensor, members: Tensor, carry: Tensor
    ) -> tuple[Tensor, Tensor]:
        kernel = None if self._trainable else stacked_kernel()[0]
        wanted = torch.is_grad_enabled() and (inputs.requires_grad or carry.requires_grad)
        if kernel is None or wanted or not kernel.fits(inputs, self.carry_dim):
            return super()._step_members(inputs, members, carry)
        if self._packed is None:
            self._packed = kernel.pack({key: self._get(key) for key in self._keys})
        return kernel.step(self._packed, inputs, members, carry, self.n_actions)

    # The packed weights are a copy: both ways to change the weights forget it.
    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._packed = None

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> StackedRNN:
        self._packed = None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _step(self, group: Grouping, inputs: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu_(self._linear(group, "fc1", inputs))
        rz = 2 * self.carry_dim
        gi = self._linear(group, "rnn", features, "_ih")
        gh = self._linear(group, "rnn", carry, "_hh")
        r, z = torch.sigmoid_(gi[:, :rz] + gh[:, :rz]).chunk(2, -1)
        new = torch.addcmul(gi[:, rz:], r, gh[:, rz:])
        # tanh(x) = 2 sigmoid(2 x) - 1, which torch computes in half the time on a CPU.
        new = torch.sigmoid_(2 * new) * 2 - 1
        hidden = torch.lerp(new, carry, z)
        return self._head(group, "fc2", hidden), hidden


class StackedIndividualRNN(StackedRNN):
    """Stacked `IndividualRNNAgent`s: the seats of all members, each a network of its own."""

    def __init__(self, networks: Sequence[AgentNetwork], *, trainable: bool = False) -> None:
        teams = [network.agents for network in networks if isinstance(network, IndividualRNNAgent)]
        if len({len(team) for team in teams}) != 1:
            raise ValueError("networks for different numbers of seats cannot be stacked")
        agents = [cast(AgentNetwork, agent) for team in teams for agent in team]
        super().__init__(agents, trainable=trainable)
        self.n_members, self._n_seats = len(teams), len(teams[0])

    def members_state(self, member: int) -> dict[str, Tensor]:
        return {
            f"agents.{seat}.{key}": value
            for seat in range(self._n_seats)
            for key, value in super(StackedIndividualRNN, self)
            .members_state(member * self._n_seats + seat)
            .items()
        }

    def step_rows(
        self, inputs: Tensor, members: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if seats is None:
            raise ValueError("members that differ by seat need the seat of every row")
        return super().step_rows(inputs, members * self._n_seats + seats, carry)


class StackedMLP(StackedAgents):
    """Stacked `MLPAgent`s."""

    def __init__(self, networks: Sequence[AgentNetwork], *, trainable: bool = False) -> None:
        super().__init__(networks, trainable=trainable)
        self.n_actions = self._get("head.bias").shape[-1]
        self._layers = [
            key.removesuffix(".weight")
            for key in self._keys
            if key.startswith("body.") and key.endswith(".weight")
        ]

    def _step(self, group: Grouping, inputs: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        hidden = inputs
        for name in self._layers:
            hidden = torch.relu_(self._linear(group, name, hidden))
        return self._head(group, "head", hidden), carry


def can_be_stacked(network: AgentNetwork) -> bool:
    """Whether networks of this kind can share one set of tensors."""
    return type(network) in _STACKS


_STACKS: dict[type[AgentNetwork], type[StackedAgents]] = {
    RNNAgent: StackedRNN,
    IndividualRNNAgent: StackedIndividualRNN,
    MLPAgent: StackedMLP,
}
