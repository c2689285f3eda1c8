"""What every opponent model offers, and what several share: history, places of the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from omg.components.episodes import OneHot
from omg.components.trajectories import SeatOrder
from omg.functional import Packing
from omg.modules.kernels.gru import GRUCore
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRows:
    """What the learning agent knows at R moments, acting or stored. The others are ordered
    relative to its own seat (next seat first), so that a model works in every seat."""

    own: Tensor  # [R, D], its observation (or the state), scaled
    last_action: Tensor  # [R], -1 before the first
    others_last: Tensor  # [R, N-1], the others' last actions, -1 before the first
    seats: Tensor  # [R]
    # [R, S], scaled. An acting model may read its own agent's columns; the others are for
    # diagnostic models and training targets.
    state: Tensor
    others_actions: Tensor | None = None  # [R, N-1], what they did at this moment; training only
    # [R, N-1, O], what they saw, scaled; training only, but for models with `needs_others`
    others_obs: Tensor | None = None
    foresight: Tensor | None = None  # [R, N-1, W], their features to come; the oracle only
    others_alive: Tensor | None = None  # [R, N-1], bool, who of them still acts; None: all
    # [R, N-1], who they are, -1: unknown; only for models that tell `players` apart, which must not
    # act on it unless everybody may know
    others_player: Tensor | None = None
    # Only for models with `needs_others`:
    others_avail: Tensor | None = None  # [R, N-1, A], bool, what they may do
    others_goal: Tensor | None = None  # [R, N-1], what they reach next, -1: nothing; stored only
    time: Tensor | None = None  # [R], steps since the episode began; stored only

    def take(self, rows: Tensor) -> ModelRows:
        """Some of the rows."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {k: v.index_select(0, rows) for k, v in known.items() if v is not None}
        return replace(self, **taken)


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a model makes of R moments while acting."""

    feature: Tensor  # [R, feature_dim], the policy's extra input
    carry: Tensor  # [R, carry_dim], what it remembers until the next step
    record: Mapping[str, Tensor] = field(default_factory=dict)  # worth storing, see record_dims


class OpponentModel(nn.Module):
    """Turns what an agent knows into features for its policy.

    Features carry no gradient into the model; it learns from its own loss, `episode_loss`.
    `carry_dim` is the width of what it remembers between steps; a fresh episode begins with zeros.
    Its `__init__` may name: spec, own_dim (width of the agent's own view), config; and settings of
    its own, given by `am_args`.
    """

    feature_dim: int
    carry_dim: int = 0
    # The acting controller must look ahead for it (see `ModelRows.foresight`).
    needs_foresight: bool = False
    # It sees what the others see and may do, also while acting (`ModelRows.others_obs` …).
    needs_others: bool = False
    # Whether its features depend on the state (`ModelRows.state`) while acting.
    reads_state: bool = True
    # Who trains it: `omg.learners.model_training.MODEL_TRAININGS`.
    training_kind: ClassVar[str] = "own_loss"

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        """Acting: the policy's extra input and the next carry."""

    @abstractmethod
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        """Stored episodes: the features acting would have had at every packed slot, [P, F]."""

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        """Named terms of whole episodes (rows of all P packed slots; `packing.now` are those at
        which everybody acted); `am_loss` is what is minimised. Empty where nothing is learned, or
        where a learner of its own trains the model."""
        return {}

    def sampled_loss(
        self, rows: ModelRows, packing: Packing, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        """As `episode_loss`, for a model whose loss draws: the generator is saved with the run."""
        return self.episode_loss(rows, packing)

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The features of `rows` if each had inferred what row donor[r] did (permutation test)."""
        return inferred.feature[donor]

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Numbers of finished episodes that only the model can tell, one per episode of `packing`
        and in its order, from rows and what was recorded at every packed slot."""
        return {}

    def places_ahead(self, recorded: Mapping[str, Tensor], seats: Tensor) -> Tensor | None:
        """Where the others are expected to be, [R, N-1, W] in scaled features of the state, from
        what was recorded at R moments; None for a model that expects nothing of the kind."""
        return None

    def meet(self, players: Sequence[str]) -> None:
        """Told once who plays in a run; for models that remember players between episodes."""

    def players(self, names: Sequence[str]) -> Tensor | None:
        """The model's numbers of these players, [P], -1 for those it never met; None for a model
        that does not tell players apart."""
        return None

    def files(self) -> Mapping[str, nn.Module]:
        """What is saved, by the name of the file (without .th, unless it ends with .pth)."""
        return {}

    def describe(self) -> Mapping[str, Any]:
        """Settings beside `am_model`, `am_hidden_dim` and `am_args` that its weights depend on or
        that acting with them needs, by the key of the configuration."""
        return {}

    def record_dims(self) -> Mapping[str, int]:
        """Widths of `Inferred.record`, by name; fields of an episode where it is stored."""
        return {}

    def believed(self) -> Sequence[str]:
        """Names of what the recorded `am_belief` is over, in order; places after them are empty."""
        return ()


class MemorylessModel(OpponentModel):
    """A model whose features depend on the present moment only."""

    @abstractmethod
    def feature(self, rows: ModelRows) -> Tensor:
        """The policy's extra input, [R, feature_dim]."""

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        return Inferred(self.feature(rows), carry)

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            return self.feature(rows)

    def loss(self, rows: ModelRows) -> Mapping[str, Tensor]:
        """Named terms; `am_loss` is what is minimised. Empty where nothing is learned."""
        return {}

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        return self.loss(rows.take(packing.now))


class NoModel(MemorylessModel):
    """`none_am`: contributes nothing, a feature of width zero."""

    feature_dim = 0
    reads_state = False

    def feature(self, rows: ModelRows) -> Tensor:
        return rows.own.new_zeros(len(rows.own), 0)


class HistoryModel(OpponentModel):
    """A model that sees `fc`: s_t → hidden/4 and `cond_rnn`: a GRU over (s_{t-1}, a⁻ⁱ_{t-1},
    a_{t-1}) → 3·hidden/4. Its memory is s_{t-1} and the GRU's state."""

    def _build_history(self, spec: EnvSpec, own_dim: int, hidden: int) -> None:
        self._embed_dim = hidden // 4
        self._cond_dim = hidden - self._embed_dim
        self._own_dim = own_dim
        self._one_hot = OneHot(spec.n_actions)
        self.fc = nn.Linear(own_dim, self._embed_dim)
        self.cond_rnn = GRUCore(own_dim + spec.n_agents * spec.n_actions, self._cond_dim)
        self.carry_dim = own_dim + self._cond_dim

    def _history(self, rows: ModelRows, previous: Tensor) -> Tensor:
        """(s_{t-1}, a⁻ⁱ_{t-1}, a_{t-1}); all zero before the first step."""
        others = self._one_hot(rows.others_last).flatten(1)
        return torch.cat([previous, others, self._one_hot(rows.last_action)], -1)

    def _embed(self, rows: ModelRows) -> Tensor:
        return torch.relu(self.fc(rows.own))

    def _advance(self, rows: ModelRows, carry: Tensor) -> tuple[Tensor, Tensor]:
        """Acting: the condition at this moment, and the next carry."""
        previous, hidden = carry.split([self._own_dim, self._cond_dim], -1)  # type: ignore[no-untyped-call]
        condition = self.cond_rnn(self._history(rows, previous), hidden)
        return condition, torch.cat([rows.own, condition], -1)

    def _conditions(self, rows: ModelRows, packing: Packing) -> Tensor:
        """The condition at every packed slot, with gradient through all steps."""
        history = self._history(rows, packing.previous(rows.own))
        start = rows.own.new_zeros(int(packing.sizes[0]), self._cond_dim)
        return self.cond_rnn.unroll_packed(history, packing.sizes, start)


def check_others(spec: EnvSpec, model: str) -> None:
    """Refuse a game without others."""
    if spec.n_agents < 2:
        raise OmgError(
            f"am_model={model} models the other agents, and {spec.name} has only one. Use none_am."
        )


def check_agent_features(spec: EnvSpec, asking: str, otherwise: str) -> None:
    """Refuse an environment that does not say whose features are whose."""
    if not spec.agent_features:
        raise OmgError(
            f"{asking} needs to know which features of {spec.name}'s state belong to which agent. "
            f"Give EnvSpec.agent_features, or {otherwise}."
        )


class SubgoalSource(nn.Module):
    """Selects what is encoded: the whole state; everything but the own features, with the other
    agents ordered relative to the own seat (so that a prior works in every seat); or the other
    agents' features alone."""

    def __init__(self, spec: EnvSpec, *, part: str = "state") -> None:
        """`part`: state, opponents or places; all is state where the environment does not say
        whose features are whose."""
        super().__init__()
        self._agents = spec.n_agents
        self._order = SeatOrder(spec)
        blocks = spec.agent_features
        whole = part == "state" or not blocks
        owned = {column for block in blocks for column in block}
        common = [c for c in range(spec.state_dim) if c not in owned and part != "places"]
        rows = []
        for seat in range(spec.n_agents):
            if whole:
                rows.append(list(range(spec.state_dim)))
                continue
            others = self._order.others_of[seat].tolist()
            rows.append([c for other in others for c in blocks[other]] + common)
        self.dim = len(rows[0])
        self._whole = whole
        self.width = len(blocks[0]) if blocks else 0
        self.place_dim = (spec.n_agents - 1) * self.width if blocks else self.dim
        kinds = torch.full((self.dim,), -1)
        if blocks and not whole:
            kinds[: self.place_dim] = torch.arange(self.width).repeat(spec.n_agents - 1)
        elif blocks:
            kinds[torch.tensor(blocks)] = torch.arange(self.width)
        # Which of an agent's features every encoded column is, -1: of no agent.
        self.register_buffer("kinds", kinds, persistent=False)
        self.kinds: Tensor
        self.register_buffer("_columns", torch.tensor(rows), persistent=False)
        self.register_buffer(
            "_blocks",
            torch.tensor(blocks) if blocks else torch.zeros(0, dtype=torch.int64),
            persistent=False,
        )
        self._columns: Tensor
        self._blocks: Tensor

    def forward(self, state: Tensor, seats: Tensor) -> Tensor:
        """state [R, S], seats [R] -> what a subgoal encodes, [R, dim]."""
        return state.gather(1, self._columns[seats])

    def of_moments(self, state: Tensor, seats: Tensor, rows_KJ: Tensor) -> Tensor:
        """What a subgoal encodes of K moments at which every other agent is seen at a row of its
        own, [K, dim]; everything else as in the earliest of these rows."""
        earliest = rows_KJ.amin(1)
        encoded: Tensor = self(state[earliest], seats[earliest])
        if rows_KJ.shape[1] == 1 or not self.width:
            return encoded
        for other in range(rows_KJ.shape[1]):
            rows = rows_KJ[:, other]
            columns = self._place_columns(seats[rows])[:, other]
            there = self(state[rows], seats[rows]).gather(1, columns)
            encoded = encoded.scatter(1, columns, there)
        return encoded

    def _place_columns(self, seats: Tensor) -> Tensor:
        """Columns of encoded parts that are the other agents' features, [R, N-1, width]."""
        if self._whole:
            return self._blocks[self._order(seats)]
        others = self._agents - 1
        columns = torch.arange(others * self.width, device=seats.device).view(others, self.width)
        return columns.expand(len(seats), -1, -1)

    def places(self, encoded: Tensor, seats: Tensor) -> Tensor:
        """The other agents' features inside encoded parts, [R, N-1, width]."""
        others = self._agents - 1
        if not self._whole:
            return encoded[:, : others * self.width].reshape(len(encoded), others, self.width)
        columns = self._blocks[self._order(seats)].flatten(1)
        return encoded.gather(1, columns).view(len(encoded), others, self.width)

    def ahead(
        self, features: Tensor, state: Tensor, seats: Tensor, alive: Tensor | None = None
    ) -> Tensor:
        """Features [R, N-1, width] of the others relative to one's own present ones, flat; zeros
        of those who are not `alive` [R, N-1]."""
        own = state.gather(1, self._blocks[seats])
        return of_present(features - own.unsqueeze(1), alive).flatten(1)

    def place(
        self, decoded: Tensor, state: Tensor, seats: Tensor, alive: Tensor | None = None
    ) -> Tensor:
        """The others' decoded features relative to one's own present ones, [R, place_dim]; the
        decoded part itself where the environment does not say whose features are whose."""
        if self.width == 0:
            return decoded
        return self.ahead(self.places(decoded, seats), state, seats, alive)


def of_present(per_other_RJ: Tensor, alive_RJ: Tensor | None) -> Tensor:
    """What is said of the others [R, N-1, …], zeros of those who have left."""
    if alive_RJ is None:
        return per_other_RJ
    return per_other_RJ * alive_RJ.view(*alive_RJ.shape, *[1] * (per_other_RJ.dim() - 2))


def mean_over_present(per_other_RJ: Tensor, alive_RJ: Tensor | None) -> Tensor:
    """The mean over moments and others [R, N-1, …], without those who have left."""
    if alive_RJ is None:
        return per_other_RJ.mean()
    each = per_other_RJ.flatten(2).mean(2) if per_other_RJ.dim() > 2 else per_other_RJ
    return (each * alive_RJ).sum() / alive_RJ.sum().clamp(min=1)


def action_loss(
    logits_RJA: Tensor, actions_RJ: Tensor, alive_RJ: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy over moments and others, and the share of right guesses; nothing counts
    of others who are not alive."""
    logits, actions = logits_RJA.flatten(0, 1), actions_RJ.flatten()
    if alive_RJ is not None:
        hit = (logits_RJA.argmax(-1) == actions_RJ).to(torch.float32)
        each = functional.cross_entropy(logits, actions, reduction="none").view_as(hit)
        return mean_over_present(each, alive_RJ), mean_over_present(hit, alive_RJ).detach()
    hits = (logits.argmax(-1) == actions).to(torch.float32).mean()
    return functional.cross_entropy(logits, actions), hits.detach()


class PresentOthers(nn.Module):
    """Every other agent's features in the state minus one's own, the next seat first: what
    `control_am` feeds, as plain inputs of the policy. So they stay what they are when the inferred
    features are exchanged between games."""

    def __init__(self, spec: EnvSpec, *, scale: float) -> None:
        super().__init__()
        check_agent_features(spec, "am_present=true", "leave am_present off")
        self._source, self._order = SubgoalSource(spec), SeatOrder(spec)
        self._scale = scale
        self.dim = self._source.place_dim

    def forward(self, state: Tensor, seats: Tensor, alive: Tensor | None = None) -> Tensor:
        """state [..., S], seats [..., n], alive [..., N] -> [..., n, dim]."""
        scaled = (state * self._scale).unsqueeze(-2).expand(*seats.shape, state.shape[-1])
        rows = scaled.reshape(-1, state.shape[-1])
        others = None
        if alive is not None:
            each = alive.unsqueeze(-2).expand(*seats.shape, alive.shape[-1])
            others = self._order.relative(each.reshape(-1, alive.shape[-1]), seats.reshape(-1))
        places = self._source.place(rows, rows, seats.reshape(-1), others)
        return places.view(*seats.shape, self.dim)
