"""The frozen players of running games: who sits where, what they remember, how they act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from omg.components.scheme import Field
from omg.controllers.base import Carry, StepView
from omg.controllers.roster import OpponentGroup, Roster, SeatRows
from omg.types import IntArray

# (carry's name, copies, seats, what they see, members within the group, the group)
Seated: TypeAlias = tuple[str, Tensor, Tensor, SeatRows, Tensor, OpponentGroup]


class Others:
    """Members of a roster in the seats that are not learning; all of it lives in the carry."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._groups = torch.from_numpy(roster.group_of)
        self._locals = torch.from_numpy(roster.local_of)

    def initial_carry(self, n_copies: int) -> Carry:
        """Nobody sits anywhere yet."""
        lead = (n_copies, self._roster.n_agents)
        carry = {"member": torch.full(lead, -1)}
        for number, group in enumerate(self._roster.groups):
            carry[f"group_{number}"] = group.initial_carry(lead)
        return carry

    def record_fields(self) -> Mapping[str, Field]:
        """Who sat where, stored with every episode."""
        return {
            "lineup": Field(
                vshape=(self._roster.n_agents,),
                dtype=torch.int64,
                storage=torch.int16,
                episode_const=True,
            )
        }

    def seat(self, carry: Carry, rows: Tensor, members: IntArray) -> None:
        """Members [E, N] (-1: not theirs) sit down for the new episodes of some copies."""
        carry["member"][rows] = torch.from_numpy(members)
        for number in range(len(self._roster.groups)):
            carry[f"group_{number}"][rows] = 0

    def act(
        self, view: StepView, carry: Carry, actions: Tensor, generator: torch.Generator
    ) -> None:
        """Fill in their actions and advance their carries, in place."""
        for name, b, n, seats, members, group in self.seated(view, carry):
            memory = carry[name] = carry[name].clone()
            actions[b, n], memory[b, n] = group.act(
                seats, members, memory[b, n], generator=generator
            )

    def seated(self, view: StepView, carry: Carry) -> Iterator[Seated]:
        """Their seats by group of players."""
        member = carry["member"]
        group_of = torch.where(member < 0, -1, self._groups[member])
        for number, group in enumerate(self._roster.groups):
            b, n = (group_of == number).nonzero(as_tuple=True)
            if not len(b):
                continue
            seats = SeatRows(
                obs=view.obs[b, n],
                state=view.state[b],
                avail=view.avail[b, n],
                last_actions=view.last_actions[b, n],
                seats=n,
            )
            yield f"group_{number}", b, n, seats, self._locals[member[b, n]], group
