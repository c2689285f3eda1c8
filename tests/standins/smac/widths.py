"""How wide SMAC's observations and states are, as a map and options make them."""

from __future__ import annotations

from omg.envs.sc2.args import MapInfo

MOVES, PATHING, HEIGHT = 4, 8, 9


def obs_width(
    info: MapInfo,
    *,
    obs_all_health: bool = True,
    obs_own_health: bool = True,
    obs_last_action: bool = False,
    obs_pathing_grid: bool = False,
    obs_terrain_height: bool = False,
    obs_timestep_number: bool = False,
) -> int:
    """Features of an observation: moves, enemies, allies, oneself; SMAC's options and defaults."""
    ours, theirs = (1 + (race == "P") for race in info.races)
    moves = MOVES + PATHING * obs_pathing_grid + HEIGHT * obs_terrain_height
    enemy = 4 + theirs * obs_all_health + info.type_bits
    ally = 4 + ours * obs_all_health + info.type_bits + info.n_actions * obs_last_action
    own = ours * (obs_own_health or obs_all_health) + info.type_bits + obs_timestep_number
    return moves + info.n_enemies * enemy + (info.n_agents - 1) * ally + own


def state_width(
    info: MapInfo, *, state_last_action: bool = True, state_timestep_number: bool = False
) -> int:
    """Features of the state: allies, enemies, last actions, time; SMAC's options and defaults."""
    units = info.n_agents * info.ally_width + info.n_enemies * info.enemy_width
    return units + info.n_agents * info.n_actions * state_last_action + state_timestep_number
