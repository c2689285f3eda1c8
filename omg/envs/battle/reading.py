"""What a state says about the units: for scripted players and for pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.battle.maps import SIDE
from omg.envs.battle.rules import Rules
from omg.types import BoolArray, FloatArray, IntArray, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """All units of R states, ours first. The dead stand in the middle of the map."""

    health: FloatArray  # [R, U], share of what is full
    shield: FloatArray  # [R, U], likewise; 0 where there are none
    place: FloatArray  # [R, U, 2]
    waits: FloatArray  # [R, U], ticks of cooldown, or energy; 0 where the state does not tell
    last: IntArray | None  # [R, N], last actions; -1: none yet. None: the state does not tell

    @property
    def alive(self) -> BoolArray:
        """Whether each lives, [R, U]."""
        found: BoolArray = self.health > 0
        return found

    def life(self, rules: Rules) -> FloatArray:
        """Health and shields in points, [R, U]."""
        total: FloatArray = self.health * rules.full_health + self.shield * rules.full_shield
        return total


def read_units(rules: Rules, states: FloatArray) -> Units:
    """From states [R, S]."""
    if rules.args.obs_instead_of_state:
        raise OmgError(
            "With env_args.obs_instead_of_state=true the state does not say where units are. Set "
            "it to false."
        )
    if states.ndim != 2 or states.shape[1] != rules.state_dim:
        raise ValueError(f"States must be [R, {rules.state_dim}], not {states.shape}.")
    n, size = len(states), rules.n_allies * rules.ally_width
    blocks = (
        (states[:, :size].reshape(n, rules.n_allies, -1), True),
        (states[:, size : rules.units_width].reshape(n, rules.n_enemies, -1), rules.both),
    )
    health, shield, places, waits = [], [], [], []
    for side, (block, tells) in enumerate(blocks):
        units = slice(0, rules.n_allies) if side == 0 else slice(rules.n_allies, None)
        at = 1 + tells
        zeros = np.zeros(block.shape[:2], np.float32)
        health.append(block[..., 0])
        shield.append(block[..., at + 2] if rules.state_shields[side] else zeros)
        places.append(block[..., at : at + 2] * np.array(rules.extent, np.float32) + SIDE / 2)
        waits.append(block[..., 1] * rules.cooldown_scale[units] if tells else zeros)
    return Units(
        health=np.concatenate(health, 1),
        shield=np.concatenate(shield, 1),
        place=np.concatenate(places, 1).astype(np.float32),
        waits=np.concatenate(waits, 1),
        last=_last_actions(rules, states),
    )


def _last_actions(rules: Rules, states: FloatArray) -> IntArray | None:
    if not rules.args.state_last_action:
        return None
    width = rules.n_seats * rules.n_actions
    shown = states[:, rules.units_width : rules.units_width + width]
    shown = shown.reshape(len(states), rules.n_seats, rules.n_actions)
    found: IntArray = np.where(shown.any(-1), shown.argmax(-1), -1)
    return found
