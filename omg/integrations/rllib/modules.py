"""Our policies as RLModules: for PPO, for DQN, and frozen ones that only play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import (
    InferenceOnlyAPI,
    QNetAPI,
    TargetNetworkAPI,
    ValueFunctionAPI,
)
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from omg.controllers import CONTROLLERS
from omg.integrations.rllib.layout import Layout
from omg.integrations.rllib.settings import Settings, check_host
from omg.integrations.rllib.windows import Fed, Moments
from omg.modules.agents import AGENTS, AgentNetwork
from omg.modules.device import set_up_torch
from omg.opponents.pool_members import weights_in
from omg.policies.policy import Policy, build_model
from omg.storage.models import load_networks
from omg.types import OmgError, user_path

Batch = dict[str, Any]
INPUTS = "omg_inputs"  # the column of a batch with what the policy is fed
PIECE = 1024  # rows for which that is made at once


def build_policy(settings: Settings) -> Policy:
    """Our policy with fresh weights, or those of the folder that the settings name."""
    config, spec = settings.config, settings.spec
    model = build_model(config, spec) if CONTROLLERS[config.mac].models else None
    policy = Policy(config=config, spec=spec, device=torch.device("cpu"), model=model)
    if settings.weights:
        folder = user_path(settings.weights)
        inside = weights_in(folder).parent.relative_to(folder)  # <alg>/ where it has a folder
        networks = policy.networks().items()
        load_networks(folder, {(inside / name).as_posix(): part for name, part in networks})
    return policy


class OmgModule(TorchRLModule):
    """A policy of ours inside an RLModule: `network` and `opponent_model` are its weights. Windows
    of the past come with the observations, so RLlib keeps no state for it."""

    action_dist_cls = TorchCategorical

    def setup(self) -> None:
        """Build the policy that `model_config["omg"]` tells of."""
        self.settings = Settings.read(self.model_config)
        set_up_torch(self.settings.config)  # threads, in every worker
        self.layout = Layout(self.settings.spec, self.settings.window)
        self.policy = build_policy(self.settings)
        self.network: AgentNetwork = self.policy.network
        self.opponent_model = self.policy.model

    def get_inference_action_dist_cls(self) -> Any:
        return TorchCategorical

    def fed(self, batch: Batch, column: str = Columns.OBS) -> Fed:
        """What the policy is fed in a batch of observations."""
        if INPUTS in batch and column == Columns.OBS:
            return Fed.stored(batch[INPUTS], batch[column], self.layout)
        return Fed.of(self.policy, Moments.of(batch[column], self.layout))

    def values(self, batch: Batch, network: AgentNetwork | None = None) -> Tensor:
        """Q or logits of every action, [R, A]."""
        return self.fed(batch).values(self.policy, network or self.network)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib's, which takes any keys; here missing ones are an error."""
        expected = set(self.get_state(inference_only=True))
        if not expected <= set(state):
            missing = ", ".join(sorted(expected - set(state)))
            raise OmgError(
                f"The state of the module lacks {missing}. It was saved with other settings; use "
                "the checkpoint of this configuration."
            )
        super().set_state(state)


class OmgPPOModule(OmgModule, ValueFunctionAPI):
    """Logits and a value, both from what the policy is fed."""

    def setup(self) -> None:
        super().setup()
        check_host(self.settings, "ppo")
        config = self.settings.config
        self.critic: AgentNetwork = AGENTS.build(
            config.policy_model,
            config.agent_args,
            input_dim=self.policy.inputs.dim,
            n_actions=1,
            hidden_dim=config.rnn_hidden_dim,
            mlp_hidden_dims=config.mlp_hidden_dims,
            dueling=False,
            n_agents=self.settings.spec.n_agents,
            config=config,
        )

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        return {Columns.ACTION_DIST_INPUTS: self.values(batch)}

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        fed = self.fed(batch)
        logits = fed.values(self.policy, self.network)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: fed}

    def compute_values(self, batch: Batch, embeddings: Fed | None = None) -> Tensor:
        """V of every row, [R]."""
        fed = embeddings or self.fed(batch)
        return fed.outputs(self.policy, self.critic).squeeze(-1)

    @torch.no_grad()
    def inputs(self, shown: Tensor) -> Tensor | None:
        """What the policy is fed, [R, I], where that can be kept for a whole update: the opponent
        model does not learn meanwhile. None where a network needs its past, too."""
        if self.network.recurrent:
            return None
        return torch.cat(
            [self.fed({Columns.OBS: part}).present for part in torch.split(shown, PIECE)]
        )


class OmgDQNModule(OmgModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """Q-values and their target network. Online and target network share the opponent model."""

    def setup(self) -> None:
        super().setup()
        check_host(self.settings, "dqn")
        if self.model_config.get("num_atoms", 1) != 1:
            raise OmgError("Our networks give one value per action. Set num_atoms=1.")
        self.uses_double_q = bool(self.model_config.get("double_q", True))
        self.epsilon_schedule = Scheduler(
            fixed_value_or_schedule=self.model_config.get("epsilon", 0.0), framework="torch"
        )

    def get_non_inference_attributes(self) -> list[str]:
        return ["target_network"]

    def make_target_networks(self) -> None:
        self.target_network: AgentNetwork = make_target_network(self.network)

    def get_target_network_pairs(self) -> list[tuple[AgentNetwork, AgentNetwork]]:
        return [(self.network, self.target_network)]

    def compute_q_values(self, batch: Batch) -> Batch:
        """Of the online network."""
        return {QF_PREDS: self.values(batch)}

    def forward_target(self, batch: Batch) -> Batch:
        """Of the target network."""
        return {QF_PREDS: self.values(batch, self.target_network)}

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        with torch.no_grad():
            q = self.values(batch)
        return {Columns.ACTIONS: q.argmax(-1), Columns.ACTION_DIST_INPUTS: q}

    def _forward_exploration(self, batch: Batch, t: int = 0, **kwargs: Any) -> Batch:
        """With probability epsilon, any possible action."""
        with torch.no_grad():
            fed = self.fed(batch)
            greedy = fed.values(self.policy, self.network).argmax(-1)
        self.epsilon_schedule.update(t)
        anything = torch.multinomial(fed.mask.float(), 1).squeeze(-1)
        explore = torch.rand(len(greedy)) < float(self.epsilon_schedule.get_current_value())
        return {Columns.ACTIONS: torch.where(explore, anything, greedy)}

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        found = {QF_PREDS: self.values(batch)}
        with torch.no_grad():
            ahead = self.fed(batch, Columns.NEXT_OBS)
            found[QF_NEXT_PREDS] = ahead.values(self.policy, self.network)
            found[QF_TARGET_NEXT_PREDS] = ahead.values(self.policy, self.target_network)
        return found


class FrozenModule(OmgModule):
    """Plays as trained here: greedily by values, or by sampling its logits; learns nothing."""

    def setup(self) -> None:
        super().setup()
        self.requires_grad_(False)

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        found = self.values(batch)
        if self.settings.config.agent_output_type == "q":
            return {Columns.ACTIONS: found.argmax(-1), Columns.ACTION_DIST_INPUTS: found}
        return {Columns.ACTION_DIST_INPUTS: found / self.settings.config.temperature}
