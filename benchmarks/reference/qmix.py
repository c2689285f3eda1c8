"""QMIX: monotonic mixing of the agents' values, learnt from whole episodes by double Q-learning."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from .episode_data import EpisodeBatch, Sizes
from .loop import Controller


def _hypernet(state_size: int, out: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(state_size, hidden), nn.ReLU(), nn.Linear(hidden, out))


class Mixer(nn.Module):
    """Two layers over the agents' values; the state gives their weights, which are >= 0."""

    def __init__(self, *, sizes: Sizes, embed: int = 32, hypernet_hidden: int = 64):
        super().__init__()
        self.n_agents = sizes.n_agents
        self.embed = embed
        state = sizes.state_size
        self.weight_1 = _hypernet(state, embed * sizes.n_agents, hypernet_hidden)
        self.weight_2 = _hypernet(state, embed, hypernet_hidden)
        self.bias_1 = nn.Linear(state, embed)
        self.bias_2 = _hypernet(state, 1, embed)

    def forward(self, agent_qs: Tensor, states: Tensor) -> Tensor:
        """[B, T, N] and [B, T, S] to [B, T, 1]."""
        n_episodes, length = agent_qs.shape[:2]
        states = states.reshape(n_episodes * length, -1)
        qs = agent_qs.reshape(-1, 1, self.n_agents)
        w1 = self.weight_1(states).abs().view(-1, self.n_agents, self.embed)
        b1 = self.bias_1(states).view(-1, 1, self.embed)
        w2 = self.weight_2(states).abs().view(-1, self.embed, 1)
        b2 = self.bias_2(states).view(-1, 1, 1)
        hidden = functional.elu(torch.bmm(qs, w1) + b1)
        total: Tensor = torch.bmm(hidden, w2) + b2
        return total.view(n_episodes, length, 1)


class QmixLearner:
    """Online and target networks, and one gradient step per call of ``train``."""

    def __init__(
        self,
        *,
        controller: Controller,
        gamma: float = 0.99,
        lr: float = 5e-4,
        grad_clip: float = 10.0,
        target_update_interval: int = 200,
    ):
        self.controller = controller
        self.mixer = Mixer(sizes=controller.sizes)
        self.target_controller = deepcopy(controller)
        self.target_mixer = deepcopy(self.mixer)
        self.gamma = gamma
        self.grad_clip = grad_clip
        self.target_update_interval = target_update_interval
        self.last_target_update = 0
        self.params = [*controller.agent.parameters(), *self.mixer.parameters()]
        self.optimiser = torch.optim.RMSprop(self.params, lr=lr, alpha=0.99, eps=1e-5)

    def train(self, batch: EpisodeBatch, *, episode: int) -> float:
        """One update from ``batch``; returns the loss. ``episode`` counts episodes played."""
        loss = self.loss(batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.params, self.grad_clip)
        self.optimiser.step()
        if episode - self.last_target_update >= self.target_update_interval:
            self.update_targets()
            self.last_target_update = episode
        return loss.item()

    def loss(self, batch: EpisodeBatch) -> Tensor:
        """Mean squared TD error over the steps that were really played."""
        rewards = batch["reward"][:, :-1]
        actions = batch["actions"][:, :-1]
        terminated = batch["terminated"][:, :-1].float()
        mask = batch["filled"][:, :-1].float()
        mask[:, 1:] = mask[:, 1:] * (1 - terminated[:, :-1])

        q = self._unroll(self.controller, batch)
        chosen = q[:, :-1].gather(3, actions).squeeze(3)
        q_total = self.mixer(chosen, batch["state"][:, :-1])

        with torch.no_grad():
            target_q = self._unroll(self.target_controller, batch)[:, 1:]
            available = batch["avail_actions"][:, 1:] != 0
            greedy = q.detach()[:, 1:].masked_fill(~available, -float("inf")).argmax(3, True)
            target_chosen = target_q.gather(3, greedy).squeeze(3)
            target_total = self.target_mixer(target_chosen, batch["state"][:, 1:])
            targets = rewards + self.gamma * (1 - terminated) * target_total

        td_error = (q_total - targets) * mask
        loss: Tensor = (td_error**2).sum() / mask.sum()
        return loss

    def update_targets(self) -> None:
        self.target_controller.agent.load_state_dict(self.controller.agent.state_dict())
        self.target_mixer.load_state_dict(self.mixer.state_dict())

    @staticmethod
    def _unroll(controller: Controller, batch: EpisodeBatch) -> Tensor:
        controller.start(batch.n_episodes)
        return torch.stack([controller.forward(batch, t) for t in range(batch.length)], dim=1)
