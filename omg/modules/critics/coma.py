"""`coma`: the value of each own action beside what the others do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omg.components.episodes import OneHot
from omg.components.trajectories import Sequences, Trajectories
from omg.config.schema import Config
from omg.modules.critics.base import Critic
from omg.types import EnvSpec


class ComaCritic(Critic):
    """Q_n(s, o_n, a^-n, ·): fed [state | own observation | the others' actions | last joint action
    | seat], PyMARL's order and layer names (fc1, fc2 …). The agent's own action is no input but an
    output, so that one pass values all its alternatives. ReLU layers without memory."""

    per_action = True
    others: Tensor

    def __init__(self, *, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self._n_agents, self._with_last = spec.n_agents, config.obs_last_action
        self._state_scale = spec.state_scale if config.scale_inputs else 1.0
        self._obs_scale = spec.obs_scale if config.scale_inputs else 1.0
        self._one_hot = OneHot(spec.n_actions)
        others = (1 - torch.eye(spec.n_agents)).repeat_interleave(spec.n_actions, 1)
        self.register_buffer("others", others, persistent=False)  # [N, N·A]
        joint = spec.n_agents * spec.n_actions
        self.input_dim = spec.state_dim + spec.obs_dim + joint + spec.n_agents
        self.input_dim += joint if self._with_last else 0
        widths = (self.input_dim, *config.critic_hidden_dims, spec.n_actions)
        self._layers = [f"fc{number}" for number in range(1, len(widths))]
        for name, width, following in zip(self._layers, widths[:-1], widths[1:], strict=True):
            self.add_module(name, nn.Linear(width, following))

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        """[P, N, I] with the actions as they were taken."""
        return self.joint_inputs(played, played.pack("actions"))

    def joint_inputs(self, played: Trajectories, actions_PN: Tensor) -> Tensor:
        """[P, N, I] with any joint actions, e.g. where none were taken."""
        state = played.pack("state") * self._state_scale
        parts = [
            self._for_all(state),
            played.pack("obs") * self._obs_scale,
            self._for_all(self._one_hot(actions_PN).flatten(1)) * self.others,
        ]
        if self._with_last:
            parts.append(self._for_all(self._one_hot(played.last_actions()).flatten(1)))
        seat = torch.eye(self._n_agents, device=state.device)
        parts.append(seat.expand(len(state), -1, -1))
        return torch.cat(parts, -1)

    def _for_all(self, shared_PI: Tensor) -> Tensor:
        return shared_PI.unsqueeze(1).expand(-1, self._n_agents, -1)

    def forward(self, inputs_PNI: Tensor, arranged: Sequences | None = None) -> Tensor:
        """Q of every own action, [P, N, A]; any rows will do, in any order."""
        values = inputs_PNI
        for name in self._layers[:-1]:
            values = torch.relu(self.get_submodule(name)(values))
        output: Tensor = self.get_submodule(self._layers[-1])(values)
        return output
