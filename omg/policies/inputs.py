"""What players see: views of running games, inputs of networks, rows of opponent models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from omg.components.episodes import REACHED, OneHot
from omg.components.trajectories import SeatOrder, Trajectories
from omg.config.schema import Config
from omg.functional import hindsight_goals
from omg.modules.kernels.acting import Shown, acting_kernel
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.base import PresentOthers
from omg.types import EnvSpec, Snapshot

# Everything that players remember between two steps; the leading axis is the copy.
Carry: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class StepView:
    """What may be used to choose the actions of B copies."""

    obs: Tensor  # [B, N, O]
    state: Tensor  # [B, S]
    avail: Tensor  # [B, N, A], bool
    last_actions: Tensor  # [B, N], -1 before the first action
    # Hands out the running games, for diagnostic models that look ahead; None: cannot be copied.
    snapshot: Callable[[], Snapshot] | None = None
    # [B, N], bool, which of all seats still act, whichever are in view; None: everybody.
    alive: Tensor | None = None

    def of_seats(self, seats_Bn: Tensor) -> StepView:
        """The same copies with some of their seats."""
        rows = torch.arange(len(seats_Bn)).unsqueeze(1)
        return StepView(
            obs=self.obs[rows, seats_Bn],
            state=self.state,
            avail=self.avail[rows, seats_Bn],
            last_actions=self.last_actions[rows, seats_Bn],
            alive=self.alive,
        )

    def of_copies(self, copies: Tensor) -> StepView:
        """Some copies with all their seats."""
        return StepView(
            obs=self.obs[copies],
            state=self.state[copies],
            avail=self.avail[copies],
            last_actions=self.last_actions[copies],
            alive=None if self.alive is None else self.alive[copies],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """The settings a policy was trained with; they travel with its weights."""

    obs_is_state: bool
    obs_last_action: bool
    obs_agent_id: bool
    scale: float = 1.0

    @classmethod
    def of(cls, config: Config, spec: EnvSpec) -> InputSettings:
        """What a configuration says; the scale is the environment's."""
        scale = spec.state_scale if config.obs_is_state else spec.obs_scale
        return cls(
            obs_is_state=config.obs_is_state,
            obs_last_action=config.obs_last_action,
            obs_agent_id=config.obs_agent_id,
            scale=scale if config.scale_inputs else 1.0,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class InputBuilder:
    """Builds [observation | last action one-hot | seat one-hot], PyMARL's order, then the others'
    present features where `present` is given, then what an opponent model contributes."""

    def __init__(
        self,
        spec: EnvSpec,
        settings: InputSettings,
        *,
        device: torch.device,
        feature_dim: int = 0,
        present: PresentOthers | None = None,
    ) -> None:
        self.settings = settings
        self._present = present
        self.own_dim = spec.state_dim if settings.obs_is_state else spec.obs_dim
        self.n_agents = spec.n_agents
        self._one_hot = OneHot(spec.n_actions)
        self._seats = torch.eye(spec.n_agents, device=device)
        self.dim = self.own_dim + feature_dim + (present.dim if present else 0)
        self.dim += spec.n_actions if settings.obs_last_action else 0
        self.dim += spec.n_agents if settings.obs_agent_id else 0
        # The same in numbers; None where inputs hold something else.
        self.shown: Shown | None = None
        if present is None and not settings.obs_is_state:
            self.shown = Shown(
                n_agents=spec.n_agents,
                last_action=settings.obs_last_action,
                seat=settings.obs_agent_id,
                scale=settings.scale,
            )

    def _join(
        self,
        obs: Tensor,
        state: Tensor,
        last_actions: Tensor,
        seats: Tensor | None,
        feature: Tensor | None,
        alive: Tensor | None,
    ) -> Tensor:
        """obs [..., n, O], state [..., S], last actions and seats [..., n], feature [..., n, F],
        alive [..., N] -> [..., n, I]; without `seats` the n rows are all seats in order."""
        lead = obs.shape[:-1]
        parts = [
            state.unsqueeze(-2).expand(*lead, state.shape[-1])
            if self.settings.obs_is_state
            else obs
        ]
        if self.settings.scale != 1.0:
            parts[0] = parts[0] * self.settings.scale
        if self.settings.obs_last_action:
            parts.append(self._one_hot(last_actions))
        if self.settings.obs_agent_id:
            one_hot = self._seats if seats is None else self._seats[seats]
            parts.append(one_hot.expand(*lead, self.n_agents))
        if self._present is not None:
            all_seats = torch.arange(self.n_agents, device=state.device)
            whose = all_seats.expand(lead) if seats is None else seats
            parts.append(self._present(state, whose, alive))
        if feature is not None:
            parts.append(feature)
        return torch.cat(parts, -1)

    def step(
        self, view: StepView, seats: Tensor | None = None, feature: Tensor | None = None
    ) -> Tensor:
        """Inputs of one step, [B, n, I]; `seats` [B, n] says which seats the view holds."""
        return self._join(view.obs, view.state, view.last_actions, seats, feature, view.alive)

    def packed(self, played: Trajectories, feature: Tensor | None = None) -> Tensor:
        """Inputs of whole episodes without padding, [P, n, I]."""
        kernel, own = acting_kernel()[0], played.own
        if kernel is not None and self.shown is not None and feature is None:
            told = (own.raw("obs"), own.raw("actions"), played.packing.place, played.seats)
            found = kernel.inputs(self.shown, *told, self._one_hot.n)
            if found is not None:
                return found
        obs = played.pack("obs")
        needed = self.settings.obs_is_state or self._present is not None
        state = played.pack("state") if needed else obs
        seats = None if played.seats is None else played.seats_PN
        alive = played.team_alive
        return self._join(obs, state, played.last_actions(), seats, feature, alive)


FORESIGHT = "foresight"  # the field of an episode that holds it


class ModelRowBuilder:
    """Builds `ModelRows` with the policy's own input settings, one row per seat that models."""

    def __init__(
        self, config: Config, spec: EnvSpec, settings: InputSettings, *, others: bool = False
    ) -> None:
        """`others`: rows also hold what the others see (see `OpponentModel.needs_others`)."""
        self._settings, self.order, self._others = settings, SeatOrder(spec), others
        self.state_scale = spec.state_scale if config.scale_inputs else 1.0
        self._obs_scale = spec.obs_scale if config.scale_inputs else 1.0

    def _build(
        self,
        obs: Tensor,
        state: Tensor,
        last_RN: Tensor,
        seats: Tensor,
        actions_RN: Tensor | None = None,
        foresight: Tensor | None = None,
        alive_RN: Tensor | None = None,
    ) -> ModelRows:
        own = state if self._settings.obs_is_state else obs
        others_last = self.order.relative(last_RN, seats)
        others_alive = None if alive_RN is None else self.order.relative(alive_RN, seats)
        if others_alive is not None:
            others_last = others_last.masked_fill(~others_alive, -1)
        return ModelRows(
            own=own * self._settings.scale,
            last_action=last_RN.gather(1, seats.unsqueeze(1)).squeeze(1),
            others_last=others_last,
            seats=seats,
            state=state * self.state_scale,
            others_actions=None if actions_RN is None else self.order.relative(actions_RN, seats),
            foresight=None if foresight is None else foresight * self.state_scale,
            others_alive=others_alive,
        )

    def acting(
        self,
        view: StepView,
        seats_Bn: Tensor,
        foresight: Tensor | None = None,
        players_BN: Tensor | None = None,
    ) -> ModelRows:
        """B·n rows, copy by copy, of the seats that act in a view of all seats; `players_BN` are
        the model's numbers of who sits where."""
        copies, agents = seats_Bn.shape
        rows = torch.arange(copies).unsqueeze(1)
        state, last, alive = view.state, view.last_actions, view.alive
        if agents > 1:
            state, last = (x.repeat_interleave(agents, 0) for x in (state, last))
            alive = None if alive is None else alive.repeat_interleave(agents, 0)
        obs = view.obs[rows, seats_Bn].flatten(0, 1)
        seats = seats_Bn.flatten().to(obs.device)
        built = self._build(obs, state, last, seats, foresight=foresight, alive_RN=alive)
        if players_BN is None and not self._others:
            return built
        order = self.order(seats_Bn.to(obs.device))  # [B, n, N-1]
        at = (rows.unsqueeze(-1).to(obs.device), order)
        players = None if players_BN is None else players_BN[at].flatten(0, 1)
        built = replace(built, others_player=players)
        if not self._others:
            return built
        return replace(
            built,
            others_obs=view.obs[at].flatten(0, 1) * self._obs_scale,
            others_avail=view.avail[at].flatten(0, 1),
        )

    def stored(self, played: Trajectories, players_BN: Tensor | None = None) -> ModelRows:
        """One row per slot and learning seat; `players_BN` as with `acting`, by episode."""
        actions, alive = played.packing.pack(played.team["actions"]), played.team_alive
        built = self._build(
            played.pack("obs").flatten(0, 1),
            played.for_rows(played.pack("state")),
            played.for_rows(played.last_actions(everybody=True).long()),
            played.seats_PN.flatten(),
            played.for_rows(actions),
            self._foresight(played),
            None if alive is None else played.for_rows(alive),
        )
        if players_BN is not None:
            players = self._of_others(players_BN[played.packing.episode], built, played)
            built = replace(built, others_player=players)
        return self._with_others(built, played) if self._others else built

    def training(self, played: Trajectories, players_BN: Tensor | None = None) -> ModelRows:
        """As `stored`, with what the others saw at every slot, which few models may know while
        acting."""
        rows = self.stored(played, players_BN)
        return rows if self._others else replace(rows, others_obs=self._seen(rows, played))

    def _with_others(self, rows: ModelRows, played: Trajectories) -> ModelRows:
        """What the others saw, could do, and were to reach."""
        packing, goal = played.packing, None
        if REACHED in played.team.scheme.fields:
            reached = packing.pack(played.team.raw(REACHED))
            goal = self._of_others(hindsight_goals(reached, packing), rows, played)
        return replace(
            rows,
            others_obs=self._seen(rows, played),
            others_avail=self._of_others(
                packing.pack(played.team.raw("avail_actions")), rows, played
            ),
            others_goal=goal,
            time=played.for_rows(packing.time).to(torch.float32),
        )

    def _seen(self, rows: ModelRows, played: Trajectories) -> Tensor:
        seen = self._of_others(played.packing.pack(played.team.raw("obs")), rows, played)
        return seen.to(torch.float32) * self._obs_scale

    def _of_others(self, of_team_PN: Tensor, rows: ModelRows, played: Trajectories) -> Tensor:
        """Values of all seats at every slot [P, N, …] as each row's others, [P·n, N-1, …]."""
        return self.order.relative(played.for_rows(of_team_PN), rows.seats)

    @staticmethod
    def _foresight(played: Trajectories) -> Tensor | None:
        """What was foreseen; at an episode's last slot, where nobody acts, what was before."""
        if FORESIGHT not in played.own.scheme.fields:
            return None
        packing, foreseen = played.packing, played.pack(FORESIGHT)
        last = (packing.time == packing.length - 1).view(-1, 1, 1)
        return torch.where(last, packing.previous(foreseen), foreseen)
