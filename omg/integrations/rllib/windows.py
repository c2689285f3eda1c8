"""From what RLlib hands a module (windows of the past) to a policy's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.trajectories import Sequences
from omg.functional import Packing
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


def policy_inputs(policy: Policy, moments: Moments) -> Tensor:
    """What the policy is fed at every slot, its opponent model's features included, [P, 1, I]; no
    gradient reaches the model."""
    seats = moments.seats_P
    feature = None
    if policy.model is not None and policy.feature_dim:
        with torch.no_grad():
            rows = policy.rows.acting(moments.view, seats)
            generator = torch.Generator()  # nothing is drawn: see settings.NEEDED
            feature = policy.model.unroll(rows, moments.packing, generator).unsqueeze(1)
    return policy.inputs.step(moments.view.of_seats(seats), seats, feature)


def outputs(policy: Policy, moments: Moments, inputs_P1I: Tensor, network: AgentNetwork) -> Tensor:
    """A network's outputs at the present of every window, [R, outputs]."""
    if not network.recurrent:
        present = inputs_P1I[moments.present].squeeze(1)
        carry = present.new_zeros(len(present), network.carry_dim)
        return network.step(present, carry, moments.seats.flatten())[0]
    arranged = Sequences(packing=moments.packing, n_seats=1, seats=moments.seats)
    return policy.unroll(inputs_P1I, arranged, network)[moments.present, 0]
