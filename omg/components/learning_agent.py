"""The learning agent's own part of episodes that a whole team played."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.scheme import Field, Scheme

SEAT = "agent_idx"


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
