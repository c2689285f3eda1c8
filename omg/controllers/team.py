"""Teams that act: one policy in the seats that learn, frozen players in the others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch, Field
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.base import Acted, Controller
from omg.controllers.foresight import make_foresight
from omg.modules.opponent_models import Inferred, ModelRows, OpponentModel
from omg.opponents.building import agent_lineup, lineup_of_tests, team_lineup
from omg.opponents.lineups import LineUp
from omg.opponents.players import LINEUP
from omg.policies.inputs import FORESIGHT, Carry, ModelRowBuilder, StepView
from omg.policies.policy import Policy, build_model, describe_model
from omg.types import EnvSpec, FloatArray, IntArray


class TeamMAC(Controller):
    """Who sits where is the line-up's business; what the policy remembers of a game is kept in
    the carry, one row per copy."""

    # An opponent model that is trained from these players' games and not used by them.
    _gathers_for: OpponentModel | None = None
    _gathering = False  # frozen players take every seat

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        policy: Policy,
        lineup: LineUp,
        record: bool = False,
        permute: bool = False,
    ) -> None:
        """`record`: store what the model infers at every step; `permute`: feed every game what
        was inferred in another one, a test of whether that is used at all."""
        self._config, self._spec, self._device = config, spec, device
        self.policy = policy
        self._place(lineup, record=record, permute=permute)

    def _place(self, lineup: LineUp, *, record: bool, permute: bool) -> None:
        self.lineup, self._records, self._permutes = lineup, record, permute
        self._foresight = None
        if self.model is not None and self.model.needs_foresight:
            self._foresight = make_foresight(self._config, self._spec, lineup.players)

    @property
    def model(self) -> OpponentModel | None:
        """The policy's opponent model."""
        return self.policy.model

    @property
    def trainee(self) -> OpponentModel | None:
        """The opponent model that is trained: the policy's, or one that is gathered for."""
        return self._gathers_for or self.model

    @property
    def spec(self) -> EnvSpec:
        """The environment."""
        return self._spec

    @property
    def seats(self) -> tuple[int, ...] | None:
        return self.lineup.seats

    @property
    def learns_one_seat(self) -> bool:
        return self.seats is None

    def sibling(
        self,
        *,
        lineup: LineUp | None = None,
        record: bool | None = None,
        permute: bool | None = None,
    ) -> TeamMAC:
        """The same policy elsewhere: among others (`lineup`), recording, or permuting."""
        other = copy.copy(self)
        other._place(
            self.lineup if lineup is None else lineup,
            record=self._records if record is None else record,
            permute=self._permutes if permute is None else permute,
        )
        return other

    def recording(self) -> TeamMAC:
        return self.sibling(record=True)

    def testing(self) -> TeamMAC:
        """Tests are played with the validation side of the pool, where it has one: what is chosen
        by them (the best model, settings) has not been seen in training, and is not held out."""
        lineup = None
        if self.lineup.players is not None and not self._gathering:
            whole = self.lineup.seats is not None
            lineup = lineup_of_tests(self._config, self._spec, self._device, whole=whole)
        return self.sibling(lineup=lineup, record=True)

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        return self.lineup.trajectories(batch)

    # --- acting ------------------------------------------------------------------------------

    def initial_carry(self, n_copies: int) -> Carry:
        width, seats = self.policy.network.carry_dim, self.lineup.n_learning
        carry = {"hidden": torch.zeros(n_copies, seats, width, device=self._device)}
        if self.model is not None:
            remembered = seats * self.model.carry_dim
            carry["model"] = torch.zeros(n_copies, remembered, device=self._device)
        return {**carry, **self.lineup.initial_carry(n_copies)}

    def skip_episodes(self, carry: Carry, episodes: int) -> None:
        self.lineup.skip_episodes(carry, episodes)

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        rows = torch.from_numpy(copies)
        for name in carry.keys() & {"hidden", "model"}:
            carry[name][rows] = 0
        return self.lineup.begin(carry, copies, rng)

    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        seats = self.lineup.learning_seats(carry)
        own = view if seats is None else view.of_seats(seats)
        kept: dict[str, Tensor] = {}
        feature, model_carry = None, {}
        if self.model is not None:
            feature, inferred = self._infer(view, carry, seats, kept, generator)
            model_carry = {"model": inferred.carry.view(len(view.obs), -1)}
        chosen, hidden = self.policy.act(
            *(own, carry["hidden"], seats, feature),
            env_steps=env_steps,
            greedy=greedy,
            generator=generator,
        )
        extras = {name: value.cpu().numpy() for name, value in kept.items()}
        carry = {**carry, "hidden": hidden, **model_carry}
        if seats is None:
            return Acted(chosen, carry, extras)
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        actions.scatter_(1, seats.cpu(), chosen)  # a frozen player may overrule it: `gathering`
        if self.lineup.players is not None:
            self.lineup.players.act(view, carry, actions, generator)
        return Acted(actions, carry, extras)

    def _infer(
        self,
        view: StepView,
        carry: Carry,
        seats: Tensor | None,
        kept: dict[str, Tensor],
        generator: torch.Generator,
    ) -> tuple[Tensor, Inferred]:
        """Features and all that was inferred; what is to be stored goes into `kept`."""
        if seats is None:
            copies, agents = view.last_actions.shape
            seats = torch.arange(agents, device=view.obs.device).expand(copies, -1)
        foreseen = self._foresight(view, carry, generator) if self._foresight else None
        feature, inferred = self.policy.infer(
            view,
            seats,
            carry["model"],
            generator,
            foresight=foreseen,
            players_BN=self._known(carry.get("member")),
            permute=self._permutes,
        )
        if self._records:
            shape = (len(seats), self.lineup.n_learning) if self.lineup.n_learning > 1 else (-1,)
            kept |= {k: v.view(*shape, v.shape[-1]) for k, v in inferred.record.items()}
        if foreseen is not None:
            kept[FORESIGHT] = foreseen
        return feature, inferred

    def _known(self, members_BN: Tensor | None) -> Tensor | None:
        """The opponent model's numbers of who sits where, [B, N], -1 for those it does not know;
        None where it tells nobody apart."""
        players = self.lineup.players
        if self.model is None or players is None or members_BN is None or not players.names:
            return None
        numbers = self.model.players(players.names)
        if numbers is None:
            return None
        found = numbers[members_BN.cpu().clamp(min=0)].masked_fill(members_BN.cpu() < 0, -1)
        return found.to(self._device)

    def known_players(self, played: Trajectories) -> Tensor | None:
        """The same of stored episodes."""
        there = LINEUP in played.team.scheme.fields
        return self._known(played.team[LINEUP]) if there else None

    def model_rows(self, played: Trajectories) -> ModelRows:
        """What the learning seats knew in stored episodes, for the opponent model."""
        return self.policy.rows.stored(played, self.known_players(played))

    def training_rows(self, played: Trajectories) -> ModelRows:
        """The same, with what the others saw: what the opponent model learns from."""
        return self.policy.rows.training(played, self.known_players(played))

    def record_fields(self) -> Mapping[str, Field]:
        fields: dict[str, Field] = {}
        if self.model is not None and self._records:
            seats = (self.lineup.n_learning,) if self.lineup.n_learning > 1 else ()
            widths = self.model.record_dims()
            fields = {name: Field(vshape=(*seats, width)) for name, width in widths.items()}
        if self._foresight is not None:
            shape = (self._spec.n_agents - 1, len(self._spec.agent_features[0]))
            fields[FORESIGHT] = Field(vshape=shape)
        return {**fields, **self.lineup.record_fields()}

    def judge(self, episodes: EpisodeBatch) -> Mapping[str, FloatArray]:
        """What the opponent model says of episodes whose inferences were recorded, e.g. how often
        its subgoals were reached; means over the seats that learn."""
        model = self.model
        if model is None or not self._records or type(model).judge is OpponentModel.judge:
            return {}
        played = self.trajectories(episodes.to(self._device))
        recorded = {
            name: played.pack(name).view(-1, width) for name, width in model.record_dims().items()
        }
        found = model.judge(self.model_rows(played), played.rows, recorded)
        return {k: v.view(len(episodes), -1).mean(1).cpu().numpy() for k, v in found.items()}

    # --- what it is --------------------------------------------------------------------------

    def networks(self) -> Mapping[str, nn.Module]:
        return {self.file_name(name): part for name, part in self.policy.networks().items()}

    def describe_team(self) -> dict[str, Any]:
        """What the weights of those who play depend on."""
        return self.describe()

    def describe(self) -> dict[str, Any]:
        roles = {"roles": list(self.lineup.roles)} if self._spec.roles else {}
        return {**self.policy.describe(), **roles}

    def players(self) -> list[str]:
        return [] if self.lineup.players is None else list(self.lineup.players.names)

    def metrics(self, env_steps: int) -> dict[str, float]:
        return self.policy.selector.metrics(env_steps)


class BasicMAC(TeamMAC):
    """Every seat is played by the same network; seats differ by their one-hot input."""

    models = False

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        lineup: LineUp | None = None,
        gathering: bool = False,
    ) -> None:
        """`gathering`: the team does not learn but plays for an opponent model that does. It acts
        like frozen players, at random with the probability `opponent_epsilon`."""
        policy = Policy(config=_frozen(config) if gathering else config, spec=spec, device=device)
        super().__init__(
            config=config,
            spec=spec,
            device=device,
            policy=policy,
            lineup=lineup or team_lineup(config, spec, device),
        )
        if gathering:
            model = build_model(config, spec).to(device)
            model.meet([])
            settings = policy.inputs.settings
            policy.rows = ModelRowBuilder(config, spec, settings, others=model.needs_others)
            self._gathers_for = model
        self._gathering = gathering

    def describe_team(self) -> dict[str, Any]:
        """What the weights of those who play depend on."""
        return super().describe()

    def describe(self) -> dict[str, Any]:
        if self._gathers_for is None:
            return super().describe()
        return {**super().describe(), **describe_model(self._config, self._gathers_for)}


def _frozen(config: Config) -> Config:
    explored = dict.fromkeys(("epsilon_start", "epsilon_finish"), config.opponent_epsilon)
    return Config.model_validate({**config.as_dict(), **explored})


class MultiModuleMAC(TeamMAC):
    """One seat learns, or all of them where neither a team string nor a pool says who else plays.
    Its files lie in a folder called like the algorithm: <alg>/agent.th."""

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        lineup: LineUp | None = None,
        gathering: bool = False,
    ) -> None:
        """`gathering`: frozen players take every seat; nobody infers anything then."""
        seated = lineup or agent_lineup(config, spec, device, gathering=gathering)
        model = build_model(config, spec)
        if lineup is None:  # the run's own players
            model.meet([] if seated.players is None else seated.players.names)
        super().__init__(
            config=config,
            spec=spec,
            device=device,
            policy=Policy(config=config, spec=spec, device=device, model=model),
            lineup=seated,
            record=config.store_inference and not gathering,
        )
        self._gathering = gathering

    def file_name(self, network: str) -> str:
        return f"{self._config.train_alg or self._config.name}/{network}"
