"""Spread: the rules of MPE's simple_spread (mpe2 1.1.1), written for many copies at once."""

from omg.envs.spread.args import SpreadArgs
from omg.envs.spread.env import SpreadEnv

__all__ = ["SpreadArgs", "SpreadEnv"]
