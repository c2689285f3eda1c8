"""From what RLlib hands a module (windows of the past) to a policy's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from omg.components.trajectories import Sequences
from omg.functional import UNAVAILABLE, Packing
from omg.integrations.rllib.layout import (
    ALIVE,
    AVAIL,
    LAST,
    OBS,
    SEAT,
    SLOTS,
    STATE,
    TIME,
    Layout,
)
from omg.modules.agents import AgentNetwork
from omg.policies.inputs import StepView
from omg.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Moments:
    """What R windows say at their P filled slots, and which slot is the present of each."""

    view: StepView  # all seats at P slots
    seats: Tensor  # [R, 1]
    packing: Packing
    present: Tensor  # [R], packed slots
    mask: Tensor  # [R, A], bool
    time: Tensor  # [P], steps since the episode began

    @classmethod
    def of(cls, rows: Tensor, layout: Layout) -> Moments:
        """From a batch of what `OmgEnv` shows, [R, size]."""
        shown = layout.parts(rows)
        slots = shown[SLOTS].long().flatten().clamp(min=1)
        filled = torch.arange(layout.window, device=slots.device) < slots.unsqueeze(1)
        packing = Packing.of(filled, torch.zeros_like(filled))
        view = StepView(
            obs=packing.pack(shown[OBS]).float(),
            state=packing.pack(shown[STATE]).float(),
            avail=packing.pack(shown[AVAIL]).bool(),
            last_actions=packing.pack(shown[LAST]).long(),
            alive=packing.pack(shown[ALIVE]).bool() if layout.spec.leavers else None,
        )
        every = torch.arange(len(rows), device=slots.device)
        place = packing.unpack(torch.arange(len(packing.time), device=slots.device))
        present, seats = place[every, slots - 1], shown[SEAT].long()
        began = shown[TIME].long().flatten() - slots + 1
        return cls(
            view=view,
            seats=seats,
            packing=packing,
            present=present,
            mask=view.avail[present, seats.flatten()],
            time=(began[packing.episode] + packing.time).float(),
        )

    @property
    def seats_P(self) -> Tensor:
        """The seat of every slot, [P, 1]."""
        return self.seats[self.packing.episode]


@dataclass(frozen=True, slots=True)
class Fed:
    """What a policy is fed in R situations, of which any of its networks makes outputs."""

    seats: Tensor  # [R, 1]
    mask: Tensor  # [R, A], bool
    present: Tensor  # [R, I], now
    past: Tensor  # [P, 1, I], at every slot; only networks that remember look at it
    moments: Moments | None = None  # None: nothing remembers

    @classmethod
    def of(cls, policy: Policy, moments: Moments) -> Fed:
        """Its opponent model's features are part of it; no gradient reaches the model."""
        seats = moments.seats_P
        feature = None
        if policy.model is not None and policy.feature_dim:
            with torch.no_grad():
                rows = replace(policy.rows.acting(moments.view, seats), time=moments.time)
                generator = torch.Generator()  # nothing is drawn: see settings.NEEDED
                feature = policy.model.unroll(rows, moments.packing, generator).unsqueeze(1)
        inputs = policy.inputs.step(moments.view.of_seats(seats), seats, feature)
        return cls(
            seats=moments.seats,
            mask=moments.mask,
            present=inputs[moments.present, 0],
            past=inputs,
            moments=moments,
        )

    @classmethod
    def stored(cls, inputs_RI: Tensor, rows: Tensor, layout: Layout) -> Fed:
        """From inputs that were made before, of the same observations."""
        shown = layout.parts(rows)
        seats, now = shown[SEAT].long(), shown[SLOTS].long().flatten().clamp(min=1) - 1
        every = torch.arange(len(rows), device=rows.device)
        mask = shown[AVAIL][every, now, seats.flatten()].bool()
        return cls(seats=seats, mask=mask, present=inputs_RI, past=inputs_RI.unsqueeze(1))

    def outputs(self, policy: Policy, network: AgentNetwork) -> Tensor:
        """Of one network, [R, outputs]."""
        if not network.recurrent:
            carry = self.present.new_zeros(len(self.present), network.carry_dim)
            return network.step(self.present, carry, self.seats.flatten())[0]
        assert self.moments is not None
        arranged = Sequences(packing=self.moments.packing, n_seats=1, seats=self.seats)
        return policy.unroll(self.past, arranged, network)[self.moments.present, 0]

    def values(self, policy: Policy, network: AgentNetwork) -> Tensor:
        """One number per action, [R, A]: Q or logits; those of impossible actions are hidden."""
        return self.outputs(policy, network).masked_fill(~self.mask, UNAVAILABLE)
