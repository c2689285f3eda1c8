"""`multi_module_mac`: a team of several policies, one of them learning, the others frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.learning_agent import SEAT
from omg.components.scheme import Field
from omg.config.schema import Config
from omg.controllers.base import Acted, Carry, Controller, StepView
from omg.controllers.model_rows import ModelRowBuilder
from omg.controllers.policy import Policy
from omg.controllers.roster import Roster, SeatRows, build_roster
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.types import EnvSpec, IntArray


class MultiModuleMAC(Controller):
    """The learning policy takes one seat, members of a roster take the others. Seat and line-up
    are drawn anew for every episode and live in the carry, one row per copy."""

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        roster: Roster | None = None,
        sharing: MultiModuleMAC | None = None,
    ) -> None:
        self._config, self._spec, self._device = config, spec, device
        self.roster = roster or build_roster(config, spec, device)
        if sharing is None:
            self.model = OPPONENT_MODELS[config.am_model](
                spec=spec,
                own_dim=spec.state_dim if config.obs_is_state else spec.obs_dim,
                config=config,
            ).to(device)
            self.policy = Policy(
                config=config, spec=spec, device=device, feature_dim=self.model.feature_dim
            )
        else:
            self.model, self.policy = sharing.model, sharing.policy
        self.rows = ModelRowBuilder(
            self.policy.inputs.settings,
            state_scale=spec.state_scale if config.scale_inputs else 1.0,
        )
        self._groups = torch.from_numpy(self.roster.group_of)
        self._locals = torch.from_numpy(self.roster.local_of)

    def with_roster(self, roster: Roster) -> MultiModuleMAC:
        """The same learning agent among other opponents, e.g. held-out ones in a test."""
        return MultiModuleMAC(
            config=self._config,
            spec=self._spec,
            device=self._device,
            roster=roster,
            sharing=self,
        )

    def initial_carry(self, n_copies: int) -> Carry:
        agents, device = self._spec.n_agents, self._device
        carry = {
            "hidden": torch.zeros(n_copies, 1, self.policy.network.carry_dim, device=device),
            "model": torch.zeros(n_copies, self.model.carry_dim, device=device),
            "seat": torch.zeros(n_copies, dtype=torch.int64),
            "member": torch.full((n_copies, agents), -1),
            "episode": torch.zeros(n_copies, dtype=torch.int64),
        }
        for number, group in enumerate(self.roster.groups):
            carry[f"group_{number}"] = group.initial_carry((n_copies, agents))
        return carry

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        agents, rows = self._spec.n_agents, torch.from_numpy(copies)
        shift = np.zeros(len(copies), np.int64)
        if self._config.is_agent_shift and self._config.agent_shift_mode == "random":
            shift = rng.integers(0, agents, len(copies))
        elif self._config.is_agent_shift:
            shift = (copies + carry["episode"][rows].numpy()) % agents
        seats, members = self.roster.line_up(shift, rng)
        if self._config.learner == "am_learner":
            members = self.roster.fill(seats, members, rng)
        carry["episode"][rows] += 1
        carry["seat"][rows] = torch.from_numpy(seats)
        carry["member"][rows] = torch.from_numpy(members)
        carry["hidden"][rows] = 0
        carry["model"][rows] = 0
        for number in range(len(self.roster.groups)):
            carry[f"group_{number}"][rows] = 0
        return {SEAT: seats, "lineup": members}

    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        seat = carry["seat"]
        rows = torch.arange(len(seat))
        own = StepView(
            obs=view.obs[rows, seat].unsqueeze(1),
            state=view.state,
            avail=view.avail[rows, seat].unsqueeze(1),
            last_actions=view.last_actions[rows, seat].unsqueeze(1),
        )
        feature, memory = self.model.infer(self.rows.acting(view, seat), carry["model"], generator)
        outputs, hidden = self.policy.step(
            own, carry["hidden"], seat.unsqueeze(1), feature.unsqueeze(1)
        )
        chosen = self.policy.selector.select(
            outputs.cpu(), own.avail.cpu(), env_steps=env_steps, greedy=greedy, generator=generator
        )
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        actions[rows, seat] = chosen.squeeze(1)  # a frozen member may overrule it, see `fill`
        carry = {**carry, "hidden": hidden, "model": memory}
        self._others_act(view, carry, actions, generator)
        return Acted(actions, carry)

    def _others_act(
        self, view: StepView, carry: Carry, actions: Tensor, generator: torch.Generator
    ) -> None:
        """Fill in the other seats' actions and advance their carries."""
        member = carry["member"]
        group_of = torch.where(member < 0, -1, self._groups[member])
        for number, group in enumerate(self.roster.groups):
            b, n = (group_of == number).nonzero(as_tuple=True)
            if not len(b):
                continue
            seats = SeatRows(
                obs=view.obs[b, n],
                state=view.state[b],
                avail=view.avail[b, n],
                last_actions=view.last_actions[b, n],
                seats=n,
            )
            name = f"group_{number}"
            memory = carry[name] = carry[name].clone()
            actions[b, n], memory[b, n] = group.act(
                seats, self._locals[member[b, n]], memory[b, n], generator=generator
            )

    def record_fields(self) -> Mapping[str, Field]:
        return {
            SEAT: Field(dtype=torch.int64, storage=torch.int16, episode_const=True),
            "lineup": Field(
                vshape=(self._spec.n_agents,),
                dtype=torch.int64,
                storage=torch.int16,
                episode_const=True,
            ),
        }

    def networks(self) -> Mapping[str, nn.Module]:
        folder = self._config.train_alg or self._config.name
        model = {f"{folder}/{name}": part for name, part in self.model.files().items()}
        return {f"{folder}/agent": self.policy.network, **model}

    def describe(self) -> dict[str, Any]:
        config = self._config
        am: dict[str, Any] = {"am_model": config.am_model, "am_hidden_dim": config.am_hidden_dim}
        if config.am_model == "omg_am":
            am |= {"subgoal_dim": config.subgoal_dim, "subgoal_source": config.subgoal_source}
        return {**self.policy.describe(), **am}

    def players(self) -> list[str]:
        return list(self.roster.names)

    def metrics(self, env_steps: int) -> dict[str, float]:
        return self.policy.selector.metrics(env_steps)
