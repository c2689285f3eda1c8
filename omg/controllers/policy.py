"""A policy: input builder + agent network + action selector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from omg.components.action_selectors import SELECTORS
from omg.components.episode_batch import EpisodeBatch
from omg.components.schedules import DecayThenFlat
from omg.config.schema import Config
from omg.controllers.base import StepView
from omg.controllers.inputs import InputBuilder, InputSettings
from omg.functional.packing import Packing
from omg.modules.agents import AGENTS, AgentNetwork
from omg.modules.opponent_models.present import PresentOthers
from omg.types import EnvSpec


class Policy:
    """One network, used by any number of seats; a network with weights per seat is told which."""

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        feature_dim: int = 0,
        shows_others: bool = False,
    ) -> None:
        """`feature_dim`: width of what an opponent model adds to the inputs; `shows_others`: the
        others' present features are among the inputs (`am_present`)."""
        self._config, self._spec, self._device = config, spec, device
        settings = InputSettings(
            obs_is_state=config.obs_is_state,
            obs_last_action=config.obs_last_action,
            obs_agent_id=config.obs_agent_id,
            scale=self._scale(config, spec),
        )
        state_scale = spec.state_scale if config.scale_inputs else 1.0
        self.inputs = InputBuilder(
            spec,
            settings,
            device=device,
            feature_dim=feature_dim,
            present=PresentOthers(spec, scale=state_scale).to(device) if shows_others else None,
        )
        self.network = self.new_network()
        self.selector = SELECTORS[config.action_selector](
            epsilon=DecayThenFlat(
                start=config.epsilon_start,
                finish=config.epsilon_finish,
                time_length=config.epsilon_anneal_time,
                decay=config.epsilon_decay,
            ),
            temperature=config.temperature,
            mask_before_softmax=config.mask_before_softmax,
        )

    @staticmethod
    def _scale(config: Config, spec: EnvSpec) -> float:
        if not config.scale_inputs:
            return 1.0
        return spec.state_scale if config.obs_is_state else spec.obs_scale

    def new_network(self) -> AgentNetwork:
        """A network of this policy's shape with fresh weights, e.g. for targets."""
        config = self._config
        return AGENTS[config.policy_model](
            input_dim=self.inputs.dim,
            n_actions=self._spec.n_actions,
            hidden_dim=config.rnn_hidden_dim,
            mlp_hidden_dims=config.mlp_hidden_dims,
            dueling=config.dueling,
            n_agents=self._spec.n_agents,
        ).to(self._device)

    def _row_seats(self, seats: Tensor | None, lead: int, agents: int) -> Tensor | None:
        """The seats of lead × agents rows; None for a network that works in any seat."""
        if not self.network.individual:
            return None
        if seats is None:
            if agents != self._spec.n_agents:
                raise ValueError("weights per seat need the seats that are in view")
            seats = torch.arange(agents, device=self._device).expand(lead, agents)
        return seats.reshape(-1)

    def step(
        self,
        view: StepView,
        hidden_BNH: Tensor,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [B, n, A] and the next hidden state; `seats` [B, n] if not all are in view,
        `feature` [B, n, F] from an opponent model."""
        inputs = self.inputs.step(view, seats)
        if feature is not None:
            inputs = torch.cat([inputs, feature], -1)
        copies, agents = inputs.shape[:2]
        rows = self._row_seats(seats, copies, agents)
        outputs, hidden = self.network.step(inputs.flatten(0, 1), hidden_BNH.flatten(0, 1), rows)
        return outputs.view(copies, agents, -1), hidden.view(copies, agents, self.network.carry_dim)

    def build_inputs(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> Tensor:
        """Inputs of whole episodes, [P, n, I]; shared by online and target passes."""
        inputs = self.inputs.packed(batch, packing, seats)
        return inputs if feature is None else torch.cat([inputs, feature], -1)

    def unroll(
        self,
        inputs_PNI: Tensor,
        packing: Packing,
        network: AgentNetwork | None = None,
        seats: Tensor | None = None,
    ) -> Tensor:
        """Outputs of whole episodes from zero hidden state, [P, n, A]; `seats` [B, n] if the
        inputs are not those of all seats."""
        return self.unroll_states(inputs_PNI, packing, network, seats)[0]

    def unroll_states(
        self,
        inputs_PNI: Tensor,
        packing: Packing,
        network: AgentNetwork | None = None,
        seats: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [P, n, A] and the hidden state behind every slot [P, n, H]."""
        network = network or self.network
        slots, agents, _ = inputs_PNI.shape
        episodes = int(packing.sizes[0])
        ranked = None if seats is None else seats[packing.episode[:episodes]]
        rows = self._row_seats(ranked, episodes, agents)
        carry = inputs_PNI.new_zeros(episodes * agents, network.carry_dim)
        outputs, hidden = network.unroll_packed(
            inputs_PNI.flatten(0, 1), packing.sizes * agents, carry, rows
        )
        hidden = hidden.view(slots, agents, network.carry_dim)
        return outputs.view(slots, agents, -1), hidden

    def describe(self) -> dict[str, Any]:
        config = self._config
        per_seat = {"n_agents": self._spec.n_agents} if self.network.individual else {}
        told = self._spec.obs_format and not config.obs_is_state  # else it sees no observation
        sampled = config.agent_output_type == "pi_logits"  # a frozen player samples them, too
        return {
            "policy_model": config.policy_model,
            "agent_output_type": config.agent_output_type,
            "rnn_hidden_dim": config.rnn_hidden_dim,
            "mlp_hidden_dims": list(config.mlp_hidden_dims),
            "dueling": config.dueling,
            "input_dim": self.inputs.dim,
            **per_seat,
            **({"temperature": config.temperature} if sampled else {}),
            **({"obs_format": self._spec.obs_format} if told else {}),
            **self.inputs.settings.as_dict(),
        }
