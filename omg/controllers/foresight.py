"""Looking ahead for the oracle: where the others are really heading to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from omg.components.trajectories import SeatOrder
from omg.config.schema import Config
from omg.envs import BatchedEnv, make_batched
from omg.opponents.players import Players, ScriptGroup
from omg.policies.inputs import Carry, StepView
from omg.types import EnvSpec, OmgError

# What is to come of the others' features, next seat first, [B, N-1, W].
Look: TypeAlias = Callable[[StepView, Carry, torch.Generator], Tensor]


def make_foresight(config: Config, spec: EnvSpec, players: Players | None) -> Look:
    """What `oracle_kind` names, among frozen players."""
    if players is None:
        raise OmgError(
            f"am_model={config.am_model} knows the future of frozen players, and here every seat "
            "learns. Give opponent_pool=<folder> or a team string, or use another am_model."
        )
    if config.oracle_kind == "future":
        return Foresight(config, spec, players).look
    if any(not isinstance(group, ScriptGroup) for group in players.groups):
        raise OmgError(
            "oracle_kind=target knows the targets of scripted players only, and there are "
            "trained ones among the opponents. Use oracle_kind=future."
        )
    order, width = SeatOrder(spec), len(spec.agent_features[0])

    def targets(view: StepView, carry: Carry, generator: torch.Generator) -> Tensor:
        found = torch.zeros(len(carry["seat"]), spec.n_agents, width)
        players.targets(view, carry, found)
        return order.relative(found, carry["seat"]).to(view.obs.device)

    return targets


class Foresight:
    """Plays copies of the running games on for some steps, with the other seats' own policies,
    while the learning agent stands still; a game that ends stays as it ended."""

    def __init__(self, config: Config, spec: EnvSpec, players: Players) -> None:
        if not spec.agent_features:
            raise OmgError(
                f"oracle_kind=future needs to know which features of {spec.name}'s state belong "
                "to which agent. Give EnvSpec.agent_features."
            )
        self._config, self._spec, self._players = config, spec, players
        self._order = SeatOrder(spec)
        self._columns = np.array(spec.agent_features)
        self._copies: dict[int, BatchedEnv] = {}

    def _env(self, n_copies: int) -> BatchedEnv:
        if n_copies not in self._copies:
            env = make_batched(self._config.env, self._config.env_args, n_copies=n_copies)
            env.reset(0)
            self._copies[n_copies] = env
        return self._copies[n_copies]

    def look(self, view: StepView, carry: Carry, generator: torch.Generator) -> Tensor:
        """The others' features to come, next seat first, [B, N-1, W]."""
        if view.snapshot is None:
            raise OmgError(
                f"oracle_kind=future plays copies of running games ahead, which {self._spec.name} "
                "does not allow. Use oracle_kind=target or another am_model."
            )
        copies, agents = len(carry["seat"]), self._spec.n_agents
        env = self._env(copies)
        env.restore(view.snapshot())
        carry = dict(carry)
        state = view.state.cpu().numpy().copy()
        device = view.obs.device
        running = np.ones(copies, np.bool_)
        rows = torch.arange(copies)
        for _ in range(self._config.oracle_steps):
            actions = torch.zeros((copies, agents), dtype=torch.int64)
            still = view.avail[rows, carry["seat"]].int().argmax(-1)  # the first possible action
            actions[rows, carry["seat"]] = still.cpu()
            self._players.act(view, carry, actions, generator)
            step = env.step(actions.numpy())
            after = step.state.copy()
            if step.final is not None:
                after[step.final.copies] = step.final.state
            state[running] = after[running]
            if step.final is not None:
                running[step.final.copies] = False
            view = StepView(
                obs=torch.from_numpy(step.obs).to(device),
                state=torch.from_numpy(step.state).to(device),
                avail=torch.from_numpy(step.avail).to(device),
                last_actions=actions.to(device),
                alive=None if step.alive is None else torch.from_numpy(step.alive).to(device),
            )
        players = state[:, self._columns.ravel()].reshape(copies, agents, -1)
        return self._order.relative(torch.from_numpy(players), carry["seat"]).to(device)
