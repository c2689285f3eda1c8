"""Our policies as RLModules: for PPO, for DQN, and frozen ones that only play."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_PREDS
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.models.configs import MLPHeadConfig  # noqa: F401
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from omg.functional import UNAVAILABLE
from omg.integrations.rllib.settings import Settings
from omg.integrations.rllib.windows import Moments, outputs, policy_inputs
from omg.modules.agents import AGENTS, AgentNetwork
from omg.policies.policy import Policy, build_model
from omg.storage.models import load_networks
from omg.types import user_path

CPU = torch.device("cpu")
