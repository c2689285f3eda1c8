"""One environment, one recurrent agent shared by all players, one small forward per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import lbforaging  # noqa: F401  (registers the environments)
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional

from .episode_data import EpisodeBatch, Sizes

DEFAULT_ENV = "Foraging-8x8-2p-3f-v3"


class ForagingTask:
    """lbforaging with a common reward, a state, and action masks that allow everything.

    Observations are raw, as in EPyMARL, unless ``obs_scale`` is not 1.
    """

    def __init__(self, *, env_id: str = DEFAULT_ENV, seed: int = 0, obs_scale: float = 1.0):
        self._obs_scale = obs_scale
        self.env: Any = gymnasium.make(env_id, disable_env_checker=True)
        self._seed: int | None = seed
        self.obs: list[np.ndarray] = []
        n_agents = len(self.env.action_space)
        obs_size = int(self.env.observation_space[0].shape[0])
        self.sizes = Sizes(
            n_agents=n_agents,
            obs_size=obs_size,
            state_size=n_agents * obs_size,
            n_actions=int(self.env.action_space[0].n),
            episode_limit=int(self.env.spec.kwargs["max_episode_steps"]),
        )

    def reset(self) -> None:
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        self._see(obs)

    def step(self, actions: list[int]) -> tuple[float, bool, bool]:
        """Common reward, whether the game ended, and whether the episode ended."""
        obs, rewards, terminated, truncated, _ = self.env.step(actions)
        self._see(obs)
        return float(sum(rewards)), bool(terminated), bool(terminated or truncated)

    def _see(self, obs: tuple[np.ndarray, ...]) -> None:
        scale = self._obs_scale
        self.obs = list(obs) if scale == 1.0 else [one * np.float32(scale) for one in obs]

    def state(self) -> np.ndarray:
        return np.concatenate(self.obs)

    def avail_actions(self) -> list[list[int]]:
        return [[1] * self.sizes.n_actions for _ in range(self.sizes.n_agents)]


class RecurrentAgent(nn.Module):
    """Linear, GRU cell, linear."""

    def __init__(self, *, input_size: int, n_actions: int, hidden_size: int = 64):
        super().__init__()
        self.hidden_size = hidden_size
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.rnn = nn.GRUCell(hidden_size, hidden_size)
        self.fc2 = nn.Linear(hidden_size, n_actions)

    def forward(self, inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.rnn(functional.relu(self.fc1(inputs)), hidden)
        return self.fc2(hidden), hidden


class Controller:
    """The shared agent and its hidden state; builds its inputs from an episode batch."""

    def __init__(self, *, sizes: Sizes, hidden_size: int = 64):
        self.sizes = sizes
        self.agent = RecurrentAgent(
            input_size=sizes.obs_size + sizes.n_actions + sizes.n_agents,
            n_actions=sizes.n_actions,
            hidden_size=hidden_size,
        )
        self.hidden = torch.zeros(0)

    def start(self, n_episodes: int) -> None:
        self.hidden = torch.zeros(n_episodes * self.sizes.n_agents, self.agent.hidden_size)

    def forward(self, batch: EpisodeBatch, t: int) -> Tensor:
        """Action values [episodes, agents, actions] at step ``t``; moves the hidden state on."""
        q: Tensor
        q, self.hidden = self.agent(self._inputs(batch, t), self.hidden)
        return q.view(batch.n_episodes, self.sizes.n_agents, -1)

    def _inputs(self, batch: EpisodeBatch, t: int) -> Tensor:
        n = self.sizes.n_agents
        last = batch["actions_onehot"][:, t - 1]
        if t == 0:
            last = torch.zeros_like(batch["actions_onehot"][:, 0])
        ids = torch.eye(n).unsqueeze(0).expand(batch.n_episodes, -1, -1)
        parts = (batch["obs"][:, t], last, ids)
        return torch.cat([part.reshape(batch.n_episodes * n, -1) for part in parts], dim=1)


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """Linear from ``start`` to ``finish`` over ``anneal_steps`` environment steps."""

    start: float = 1.0
    finish: float = 0.05
    anneal_steps: int = 50_000

    def at(self, step: int) -> float:
        slope = (self.start - self.finish) / self.anneal_steps
        return max(self.finish, self.start - slope * step)


def epsilon_greedy(q: Tensor, avail: Tensor, epsilon: float) -> Tensor:
    """Actions [episodes, agents]; greedy or uniform over what is available, per agent."""
    greedy = q.masked_fill(avail == 0, -float("inf")).argmax(dim=2)
    if epsilon == 0.0:
        return greedy
    explore = torch.rand(greedy.shape) < epsilon
    choice = Categorical(avail.float(), validate_args=False)
    uniform: Tensor = choice.sample()  # type: ignore[no-untyped-call]
    return torch.where(explore, uniform, greedy)


class Runner:
    """Plays whole episodes and keeps the last one in ``batch``."""

    def __init__(self, *, task: ForagingTask, controller: Controller, epsilon: Epsilon):
        self.task = task
        self.controller = controller
        self.epsilon = epsilon
        self.env_steps = 0
        self.batch = EpisodeBatch(sizes=task.sizes, n_episodes=1)
        self.episode_return = 0.0

    @torch.no_grad()
    def run_episode(self, *, test: bool = False) -> int:
        """Play one episode; returns the environment steps made. Tests are greedy, not counted."""
        self.batch = EpisodeBatch(sizes=self.task.sizes, n_episodes=1)
        self.episode_return = 0.0
        self.task.reset()
        self.controller.start(1)
        epsilon = 0.0 if test else self.epsilon.at(self.env_steps)
        t, over = 0, False
        while not over:
            actions = self._observe_and_act(t, epsilon)
            reward, terminated, over = self.task.step(actions[0].tolist())
            self.episode_return += reward
            self.batch.update(
                {"actions": actions, "reward": [(reward,)], "terminated": [(terminated,)]}, t
            )
            t += 1
            if not test:
                epsilon = self.epsilon.at(self.env_steps + t)
        self.batch.update({"actions": self._observe_and_act(t, epsilon)}, t)
        if not test:
            self.env_steps += t
        return t

    def _observe_and_act(self, t: int, epsilon: float) -> Tensor:
        task = self.task
        seen = {
            "state": [task.state()],
            "avail_actions": [task.avail_actions()],
            "obs": [task.obs],
        }
        self.batch.update(seen, t)
        q = self.controller.forward(self.batch, t)
        return epsilon_greedy(q, self.batch["avail_actions"][:, t], epsilon)
