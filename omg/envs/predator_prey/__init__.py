"""Predator-Prey: the rules of MPE's simple_tag (mpe2 1.1.1), written for many copies at once."""

from omg.envs.predator_prey.args import PredatorPreyArgs
from omg.envs.predator_prey.env import PredatorPreyEnv
from omg.envs.predator_prey.frame import PredatorPreyFrame, frames_from_states

__all__ = ["PredatorPreyArgs", "PredatorPreyEnv", "PredatorPreyFrame", "frames_from_states"]
