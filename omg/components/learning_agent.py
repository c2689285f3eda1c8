"""The learning agent's own part of episodes that a whole team played."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.scheme import Field, Scheme

SEAT = "agent_idx"


def other_seats(seats_R: Tensor, n_agents: int) -> Tensor:
    """The other seats in order from the own one on (next seat first), [R, N-1]: the order in
    which everything about the others is kept, so that a model works in every seat."""
    steps = torch.arange(1, n_agents, device=seats_R.device)
    return (seats_R.unsqueeze(1) + steps) % n_agents


def relative_others(per_seat_RN: Tensor, seats_R: Tensor) -> Tensor:
    """The other seats' values [R, N, …] in that order, [R, N-1, …]."""
    rows = torch.arange(len(seats_R), device=seats_R.device).unsqueeze(1)
    return per_seat_RN[rows, other_seats(seats_R, per_seat_RN.shape[1])]


def one_seat_scheme(scheme: Scheme) -> Scheme:
    """The same fields for a single agent; a reward per agent becomes that agent's reward."""
    fields = dict(scheme.fields)
    reward = fields["reward"]
    fields["reward"] = Field(vshape=(1,), dtype=reward.dtype, storage=reward.storage)
    return Scheme(fields, {**scheme.groups, "agents": 1}, scheme.derived)


def learning_agent_part(batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor]:
    """Each episode with only the seat that learned in it, and those seats [B, 1]."""
    seats = batch[SEAT]
    rows = torch.arange(len(batch), device=batch.device)
    data: dict[str, Tensor] = {}
    for name, spec in batch.scheme.fields.items():
        value = batch.raw(name)
        per_agent = spec.group == "agents" or (name == "reward" and value.shape[-1] > 1)
        if per_agent and spec.episode_const:
            value = value[rows, seats].unsqueeze(1)
        elif per_agent:
            value = value[rows, :, seats].unsqueeze(2)
        data[name] = value
    part = EpisodeBatch.from_data(one_seat_scheme(batch.scheme), data, batch.filled)
    return part, seats.unsqueeze(1)
