"""Level-based foraging: the rules of lbforaging 2.0.0, written for many copies at once."""

from omg.envs.foraging.args import ForagingArgs, ForagingRules
from omg.envs.foraging.env import ForagingEnv
from omg.envs.foraging.render import ForagingFrame, frames_from_states

__all__ = ["ForagingArgs", "ForagingEnv", "ForagingFrame", "ForagingRules", "frames_from_states"]
