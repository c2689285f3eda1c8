"""`multi_module_mac`: a team of several policies, one of them learning, the others frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import SEAT, SeatOrder
from omg.components.scheme import Field
from omg.config.schema import Config
from omg.controllers.base import Acted, Carry, Controller, StepView
from omg.controllers.foresight import Foresight
from omg.controllers.model_rows import FORESIGHT, ModelRowBuilder
from omg.controllers.others import Others
from omg.controllers.policy import Policy
from omg.controllers.roster import Roster, ScriptGroup, build_roster
from omg.controllers.subgoal_hits import subgoal_hits
from omg.modules.opponent_models import Inferred, ModelRows
from omg.modules.opponent_models.build import build_model
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, FloatArray, IntArray, OmgError

Look: TypeAlias = Callable[[StepView, Carry, torch.Generator], Tensor]


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
        record: bool = False,
        permute: bool = False,
    ) -> None:
        self._config, self._spec, self._device = config, spec, device
        stored = config.store_inference and config.learner != "am_learner"  # nobody infers there
        self._records, self._permutes = record or stored, permute
        self.roster = roster or build_roster(config, spec, device)
        if sharing is None:
            self.model = build_model(config, spec).to(device)
            self.policy = Policy(
                config=config,
                spec=spec,
                device=device,
                feature_dim=self.model.feature_dim,
                shows_others=config.am_present,
            )
        else:
            self.model, self.policy = sharing.model, sharing.policy
        self._order = SeatOrder(spec).to(device)
        self.rows = ModelRowBuilder(
            self.policy.inputs.settings,
            self._order,
            state_scale=spec.state_scale if config.scale_inputs else 1.0,
            obs_scale=spec.obs_scale if config.scale_inputs else 1.0,
        )
        self._others = Others(self.roster)
        self._foresight = self._new_foresight() if self.model.needs_foresight else None

    def with_roster(self, roster: Roster) -> MultiModuleMAC:
        """The same learning agent among other opponents, e.g. held-out ones in a test."""
        return self._sibling(roster=roster)

    def recording(self) -> MultiModuleMAC:
        """The same agent, storing what its model inferred at every step with the episodes; it
        can `judge` them by their subgoals then."""
        return self._sibling(record=True)

    def permuting(self) -> MultiModuleMAC:
        """The same agent, fed in every game what it inferred in another one (a test of whether
        it uses what it infers). Needs two copies or more."""
        return self._sibling(permute=True)

    def _sibling(self, **changes: Any) -> MultiModuleMAC:
        settings = {
            "roster": self.roster,
            "record": self._records,
            "permute": self._permutes,
            **changes,
        }
        return MultiModuleMAC(
            config=self._config, spec=self._spec, device=self._device, sharing=self, **settings
        )

    def _new_foresight(self) -> Look:
        if self._config.oracle_kind == "future":
            return Foresight(self._config, self._spec, self._others.act).look
        unknown = [g for g in self.roster.groups if not isinstance(g, ScriptGroup)]
        if unknown:
            raise OmgError(
                "oracle_kind=target knows the targets of scripted players only, and there are "
                "trained ones among the opponents. Use oracle_kind=future."
            )
        return self._targets

    def _targets(self, view: StepView, carry: Carry, generator: torch.Generator) -> Tensor:
        """Where the others are heading to, next seat first, [B, N-1, W]."""
        agents, width = self._spec.n_agents, len(self._spec.agent_features[0])
        found = torch.zeros(len(carry["seat"]), agents, width)
        for name, b, n, seats, members, group in self._others.seated(view, carry):
            known = group.targets(seats, members, carry[name][b, n])
            assert known is not None
            found[b, n] = known
        return self._order.relative(found.to(self._device), carry["seat"].to(self._device))

    def initial_carry(self, n_copies: int) -> Carry:
        device = self._device
        return {
            "hidden": torch.zeros(n_copies, 1, self.policy.network.carry_dim, device=device),
            "model": torch.zeros(n_copies, self.model.carry_dim, device=device),
            "seat": torch.zeros(n_copies, dtype=torch.int64),
            "episode": torch.zeros(n_copies, dtype=torch.int64),
            **self._others.initial_carry(n_copies),
        }

    def skip_episodes(self, carry: Carry, episodes: int) -> None:
        carry["episode"] += episodes

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        places, rows = len(self.roster.own_seats), torch.from_numpy(copies)
        shift = np.zeros(len(copies), np.int64)
        if self._config.is_agent_shift and self._config.agent_shift_mode == "random":
            shift = rng.integers(0, places, len(copies))
        elif self._config.is_agent_shift:
            shift = (copies + carry["episode"][rows].numpy()) % places
        seats, members = self.roster.line_up(shift, rng)
        if self._config.learner == "am_learner":
            members = self.roster.fill(seats, members, rng)
        carry["episode"][rows] += 1
        carry["seat"][rows] = torch.from_numpy(seats)
        carry["hidden"][rows] = 0
        carry["model"][rows] = 0
        self._others.seat(carry, rows, members)
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
        foreseen = self._foresight(view, carry, generator) if self._foresight else None
        known = self.rows.acting(view, seat, foreseen)
        inferred = self.model.infer(known, carry["model"], generator)
        feature = (
            self._exchanged(inferred, known, generator) if self._permutes else inferred.feature
        )
        outputs, hidden = self.policy.step(
            own, carry["hidden"], seat.unsqueeze(1), feature.unsqueeze(1)
        )
        chosen = self.policy.selector.select(
            outputs.cpu(), own.avail.cpu(), env_steps=env_steps, greedy=greedy, generator=generator
        )
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        actions[rows, seat] = chosen.squeeze(1)  # a frozen member may overrule it, see `fill`
        carry = {**carry, "hidden": hidden, "model": inferred.carry}
        self._others.act(view, carry, actions, generator)
        return Acted(actions, carry, self._extras(inferred, foreseen))

    def _exchanged(
        self, inferred: Inferred, known: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """Features of what was inferred in another copy with the same seat. Alone in its seat, a
        copy keeps its own."""
        donor = torch.arange(len(known.seats))
        for seat in set(known.seats.tolist()):
            rows = (known.seats == seat).nonzero(as_tuple=True)[0].cpu()
            donor[rows] = rows.roll(1)
        return self.model.exchanged(inferred, donor, known, generator)

    def _extras(self, inferred: Inferred, foreseen: Tensor | None) -> dict[str, NDArray[Any]]:
        kept = dict(inferred.record) if self._records else {}
        if foreseen is not None:
            kept[FORESIGHT] = foreseen
        return {name: value.cpu().numpy() for name, value in kept.items()}

    def judge(self, episodes: EpisodeBatch) -> Mapping[str, FloatArray]:
        """Subgoal hit ratios, where the subgoals were recorded."""
        if not (self._records and isinstance(self.model, SubgoalModel)):
            return {}
        return {"hit_ratio": subgoal_hits(episodes, self.model, self.rows.state_scale, self._spec)}

    def record_fields(self) -> Mapping[str, Field]:
        widths = self.model.record_dims() if self._records else {}
        fields = {name: Field(vshape=(width,)) for name, width in widths.items()}
        if self.model.needs_foresight:
            shape = (self._spec.n_agents - 1, len(self._spec.agent_features[0]))
            fields[FORESIGHT] = Field(vshape=shape)
        return {
            **fields,
            SEAT: Field(dtype=torch.int64, storage=torch.int16, episode_const=True),
            **self._others.record_fields(),
        }

    def networks(self) -> Mapping[str, nn.Module]:
        folder = self._config.train_alg or self._config.name
        model = {f"{folder}/{name}": part for name, part in self.model.files().items()}
        return {f"{folder}/agent": self.policy.network, **model}

    def describe(self) -> dict[str, Any]:
        config = self._config
        am: dict[str, Any] = {
            "am_model": config.am_model,
            "am_hidden_dim": config.am_hidden_dim,
            "am_args": dict(config.am_args),
            "am_present": config.am_present,
            **self.model.describe(),
        }
        if isinstance(self.model, SubgoalModel):
            am |= {
                "subgoal_dim": config.subgoal_dim,
                "subgoal_source": config.subgoal_source,
                "subgoal_inference": config.subgoal_inference,
                "subgoal_feature": config.subgoal_feature,
            }
        roles = {"roles": [self.roster.role]} if self._spec.roles else {}
        return {**self.policy.describe(), **roles, **am}

    def players(self) -> list[str]:
        return list(self.roster.names)

    def metrics(self, env_steps: int) -> dict[str, float]:
        return self.policy.selector.metrics(env_steps)
