"""Predator-Prey: the rules of MPE's simple_tag (mpe2 1.1.1), written for many copies at once."""

from omg.envs.predator_prey.args import PredatorPreyArgs
from omg.envs.predator_prey.env import PredatorPreyEnv

__all__ = ["PredatorPreyArgs", "PredatorPreyEnv"]
