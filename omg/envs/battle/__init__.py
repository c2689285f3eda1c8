"""Battles: SMAC's maps and interface without StarCraft II, written for many copies at once."""

from omg.envs.battle.args import BattleArgs
from omg.envs.battle.env import BattleEnv

__all__ = ["BattleArgs", "BattleEnv"]
