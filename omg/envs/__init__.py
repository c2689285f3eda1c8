"""Environments by name, as batches of copies."""

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.envs.registry import ENVS, make_batched

__all__ = ["ENVS", "BatchedEnv", "MultiAgentEnv", "make_batched"]
