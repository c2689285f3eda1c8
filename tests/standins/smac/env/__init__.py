"""Stand-in for smac.env (see ../../README.md)."""

from smac.env.starcraft2.starcraft2 import StarCraft2Env

__all__ = ["StarCraft2Env"]
