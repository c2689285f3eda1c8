"""Frozen players: trained policies and scripts, and how all of them act at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from omg.components.episodes import Field
from omg.modules.agents.stacked import StackedAgents
from omg.opponents.pool_members import ScriptSpec
from omg.opponents.scripts import scripted_game
from omg.policies.inputs import Carry, StepView
from omg.policies.policy import Policy
from omg.types import IntArray

LINEUP = "lineup"  # the field of an episode that says who sat where


@dataclass(frozen=True, slots=True)
class SeatRows:
    """R seats of any copies, of which `view` shows everything."""

    view: StepView
    copies: Tensor  # [R]
    seats: Tensor  # [R]

    @property
    def avail(self) -> Tensor:
        """What each may do, [R, A]."""
        return self.view.avail[self.copies, self.seats]

    @property
    def state(self) -> Tensor:
        """The state of each one's game, [R, S]."""
        return self.view.state[self.copies]

    def own(self) -> StepView:
        """What each sees: R copies with one seat."""
        view, at = self.view, (self.copies, self.seats)
        return StepView(
            obs=view.obs[at].unsqueeze(1),
            state=self.state,
            avail=self.avail.unsqueeze(1),
            last_actions=view.last_actions[at].unsqueeze(1),
            alive=None if view.alive is None else view.alive[self.copies],
        )

    def take(self, rows: Tensor) -> SeatRows:
        """Some of the rows."""
        return SeatRows(self.view, self.copies[rows], self.seats[rows])


class PlayerGroup(ABC):
    """Members that act in one call."""

    @abstractmethod
    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        """Zeros [copies, seats, width]; an episode begins with zeros."""

    @abstractmethod
    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Actions [R] and the next carry [R, width] of rows played by `members` [R]."""

    def targets(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor | None:
        """Where R rows are heading to, as features of a player [R, W]; None: nobody knows."""
        return None

    def goals(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor | None:
        """Which of the game's goals R rows pursue, [R], -1 for none; None: nobody knows."""
        return None

    def modules(self) -> list[nn.Module]:
        """The members' networks."""
        return []


class PolicyGroup(PlayerGroup):
    """Trained policies. Those with logits sample them at the temperature they were trained with,
    those with values take the best; each acts at random with probability `epsilon`."""

    def __init__(self, policies: Sequence[Policy], *, epsilon: float, device: torch.device) -> None:
        self._epsilon, self._device = epsilon, device
        heat = [_temperature(policy) for policy in policies]
        self._heat = torch.tensor(heat) if any(heat) else None

    @abstractmethod
    def _outputs(
        self, rows: SeatRows, members: Tensor, carry: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Outputs [R, A] and the next carry."""

    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        outputs, carry = self._outputs(rows, members, carry, generator)
        avail, outputs = rows.avail.cpu(), outputs.cpu()
        if self._heat is not None:  # Gumbel: the largest of logit - t log E has softmax's odds
            race = torch.empty_like(outputs).exponential_(generator=generator).log_()
            outputs = outputs - self._heat[members].unsqueeze(1) * race
        best = outputs.masked_fill(~avail, -torch.inf).argmax(-1)
        if self._epsilon == 0.0:
            return best, carry
        keys = torch.rand(avail.shape, generator=generator).masked_fill(~avail, -1.0)
        explore = torch.rand(best.shape, generator=generator) < self._epsilon
        return torch.where(explore, keys.argmax(-1), best), carry


def _temperature(policy: Policy) -> float:
    """Of the sampling of a policy with logits; 0 for one with values."""
    config = policy.config
    return config.temperature if config.agent_output_type == "pi_logits" else 0.0


class StackedGroup(PolicyGroup):
    """Policies of one architecture and equal inputs, without opponent models: one call for all."""

    def __init__(self, policies: Sequence[Policy], *, epsilon: float, device: torch.device) -> None:
        super().__init__(policies, epsilon=epsilon, device=device)
        networks = [policy.network for policy in policies]
        self._stacked = StackedAgents.from_networks(networks).to(device)
        self._inputs = policies[0].inputs

    def modules(self) -> list[nn.Module]:
        return [self._stacked]

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, self._stacked.carry_dim, device=self._device)

    def _outputs(
        self, rows: SeatRows, members: Tensor, carry: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        inputs = self._inputs.step(rows.own(), rows.seats.unsqueeze(1)).squeeze(1)
        seats = rows.seats.to(self._device)
        return self._stacked.step_rows(inputs, members.to(self._device), carry, seats)


class SingleGroup(PolicyGroup):
    """Policies that cannot be stacked, e.g. with opponent models: one call per member. The carry
    is the network's, then the model's."""

    def __init__(self, policies: Sequence[Policy], *, epsilon: float, device: torch.device) -> None:
        super().__init__(policies, epsilon=epsilon, device=device)
        self._policies = list(policies)
        self._width = max(p.network.carry_dim + p.model_carry_dim for p in policies)
        self._n_actions = policies[0].n_actions
        for module in self.modules():
            module.requires_grad_(False)

    def modules(self) -> list[nn.Module]:
        found: list[nn.Module] = [policy.network for policy in self._policies]
        return found + [policy.model for policy in self._policies if policy.model is not None]

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, self._width, device=self._device)

    def _outputs(
        self, rows: SeatRows, members: Tensor, carry: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        outputs = carry.new_zeros(len(members), self._n_actions)
        carry = carry.clone()
        for member in sorted(set(members.tolist())):
            at = (members == member).nonzero(as_tuple=True)[0]
            policy = self._policies[member]
            outputs[at], carry[at] = self._play(policy, rows.take(at), carry[at], generator)
        return outputs, carry

    @staticmethod
    def _play(
        policy: Policy, rows: SeatRows, carry: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        seats = rows.seats.unsqueeze(1)
        split = policy.network.carry_dim
        hidden, rest = carry[:, :split], carry[:, split:]
        feature = None
        if policy.model is not None:
            remembered = rest[:, : policy.model_carry_dim]
            around = rows.view.of_copies(rows.copies)
            feature, inferred = policy.infer(around, seats, remembered, generator)
            rest = rest.clone()
            rest[:, : policy.model_carry_dim] = inferred.carry
        outputs, hidden = policy.step(rows.own(), hidden.unsqueeze(1), seats, feature)
        return outputs.squeeze(1), torch.cat([hidden.squeeze(1), rest], -1)


class ScriptGroup(PlayerGroup):
    """Scripted players; few kinds, many rows each."""

    def __init__(
        self, scripts: Sequence[ScriptSpec], env: str, env_args: Mapping[str, Any]
    ) -> None:
        self._game = scripted_game(env)
        self._board = self._game.board_of(env_args)
        self._scripts = [self._game.make_script(s.name, noise=s.noise) for s in scripts]
        self._width = self._game.MEMORY_DIM

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, self._width, dtype=torch.int64)

    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        seed = int(torch.randint(2**62, (), generator=generator))
        actions, memory = self._game.act_together(
            self._scripts,
            members.numpy(),
            rows.state.cpu().numpy(),
            rows.seats.numpy(),
            rows.avail.cpu().numpy(),
            carry.numpy(),
            np.random.default_rng(seed),
            self._board,
        )
        return torch.from_numpy(actions), torch.from_numpy(memory)

    def targets(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor:
        return torch.from_numpy(self._game.headings(*self._situation(rows, members, carry)))

    def goals(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor | None:
        told = getattr(self._game, "goals", None)
        return torch.from_numpy(told(*self._situation(rows, members, carry))) if told else None

    def _situation(self, rows: SeatRows, members: Tensor, carry: Tensor) -> tuple[Any, ...]:
        state = rows.state.cpu().numpy()
        seats, memory = rows.seats.numpy(), carry.numpy()
        return self._scripts, members.numpy(), state, seats, memory, self._board


class Players:
    """All frozen players of a run in their groups. Who sits where, and what each remembers, is
    kept in the carry."""

    def __init__(
        self, names: Sequence[str], groups: Sequence[tuple[PlayerGroup, Sequence[int]]], seats: int
    ) -> None:
        """`groups`: each with the numbers of its members among `names`."""
        self.names = tuple(names)
        self.groups = tuple(group for group, _ in groups)
        self._seats = seats
        self._group_of = torch.zeros(len(names), dtype=torch.int64)
        self._local_of = torch.zeros(len(names), dtype=torch.int64)
        for number, (_, members) in enumerate(groups):
            self._group_of[list(members)] = number
            self._local_of[list(members)] = torch.arange(len(members))

    def modules(self) -> list[nn.Module]:
        """The players' networks, e.g. to see that training leaves them alone."""
        return [module for group in self.groups for module in group.modules()]

    def initial_carry(self, n_copies: int) -> Carry:
        """Nobody sits anywhere yet."""
        lead = (n_copies, self._seats)
        carry = {"member": torch.full(lead, -1)}
        for number, group in enumerate(self.groups):
            carry[f"group_{number}"] = group.initial_carry(lead)
        return carry

    def record_fields(self) -> Mapping[str, Field]:
        """Who sat where, stored with every episode."""
        field = Field(
            vshape=(self._seats,), dtype=torch.int64, storage=torch.int16, episode_const=True
        )
        return {LINEUP: field}

    def seat(self, carry: Carry, rows: Tensor, members: IntArray) -> None:
        """Members [E, N] (-1: not theirs) sit down for the new episodes of some copies."""
        carry["member"][rows] = torch.from_numpy(members)
        for number in range(len(self.groups)):
            carry[f"group_{number}"][rows] = 0

    def act(
        self, view: StepView, carry: Carry, actions: Tensor, generator: torch.Generator
    ) -> None:
        """Fill in their actions [B, N] and advance their carries, in place."""
        for name, rows, members, group in self._seated(view, carry):
            at = (rows.copies, rows.seats)
            memory = carry[name] = carry[name].clone()
            actions[at], memory[at] = group.act(rows, members, memory[at], generator=generator)

    def targets(self, view: StepView, carry: Carry, found: Tensor) -> None:
        """Fill in where they are heading to, [B, N, W]; all groups must know."""
        for name, rows, members, group in self._seated(view, carry):
            at = (rows.copies, rows.seats)
            known = group.targets(rows, members, carry[name][at])
            assert known is not None
            found[at] = known

    def goals(self, view: StepView, carry: Carry) -> Tensor:
        """Which of the game's goals every seat pursues, [B, N]; -1 for none, or where nobody
        knows (learning seats, trained players)."""
        found = torch.full(carry["member"].shape, -1)
        for name, rows, members, group in self._seated(view, carry):
            at = (rows.copies, rows.seats)
            known = group.goals(rows, members, carry[name][at])
            if known is not None:
                found[at] = known
        return found

    def _seated(
        self, view: StepView, carry: Carry
    ) -> Iterator[tuple[str, SeatRows, Tensor, PlayerGroup]]:
        """By group: the carry's name, the seats, and their members within the group."""
        member = carry["member"]
        group_of = torch.where(member < 0, -1, self._group_of[member])
        for number, group in enumerate(self.groups):
            copies, seats = (group_of == number).nonzero(as_tuple=True)
            if len(copies):
                members = self._local_of[member[copies, seats]]
                yield f"group_{number}", SeatRows(view, copies, seats), members, group
