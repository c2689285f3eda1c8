"""Learners of any algorithm, small, and batches for them; see `every_algorithm.TABLE`."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch, Scheme, environment_scheme
from omg.components.trajectories import SEAT
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.learners import Learner, Progress
from omg.modules.agents import AgentNetwork
from omg.opponents.lineups import EveryoneLearns, OneLearns
from omg.opponents.players import Players
from omg.runners.assembly import build_learner
from omg.types import EnvSpec

from . import mdps
from .every_algorithm import ACTIONS, AGENTS, OBS, STATE, TABLE

CPU = torch.device("cpu")
SMALL = [
    *("--env-config=foraging", "--rnn_hidden_dim=16", "--mlp_hidden_dims=[16,16]"),
    *("--critic_hidden_dims=[16,16]", "--mixing_embed_dim=8", "--hypernet_embed=16"),
    *("--am_hidden_dim=16", "--liam_embed_dim=4", "--meliba_permanent_dim=3"),
    *("--meliba_temporal_dim=3", "--types_max=3"),
    *("--subgoal_dim=4", "--subgoal_horizon=2"),
    *("--subgoal_fixed_k=2", "--ppo_epochs=2", "--moa_min_size=1", "--moa_update_time=2"),
]
# A game whose numbers mean nothing: two features of every agent in the state, one of nobody.
RANDOM = EnvSpec(
    name="random",
    n_agents=AGENTS,
    n_actions=ACTIONS,
    obs_dim=OBS,
    state_dim=STATE,
    episode_limit=8,
    agent_features=tuple((2 * n, 2 * n + 1) for n in range(AGENTS)),
)
# `mdps.SPEC` for opponent models that ask whose features are whose.
TWO_STATES = EnvSpec(
    **{
        **{name: getattr(mdps.SPEC, name) for name in EnvSpec.__slots__},
        "agent_features": ((0,), (1,)),
    }
)


def unroll_equal(
    network: AgentNetwork, inputs_TRI: Tensor, carry: Tensor, seats: Tensor | None = None
) -> Tensor:
    """Sequences of equal length: inputs [T, R, I], seats [R] -> outputs [T, R, A]."""
    steps, rows, _ = inputs_TRI.shape
    sizes = torch.full((steps,), rows, dtype=torch.int64)
    outputs, _ = network.unroll_packed(inputs_TRI.flatten(0, 1), sizes, carry, seats)
    return outputs.view(steps, rows, -1)


@functools.cache
def _config(*words: str) -> Config:
    return load_command_line(words).config


def shipped(name: str) -> Config:
    """The configuration of a row as users get it."""
    row = TABLE[name]
    return _config(f"--config={row.config or name}", *row.words)


class Bench:
    """A learner with everything around it that a test needs."""

    def __init__(self, name: str, *words: str, spec: EnvSpec = RANDOM, seed: int = 0) -> None:
        self.row, self.spec = TABLE[name], spec
        alg = self.row.config or name
        self.config = _config(f"--config={alg}", *SMALL, *self.row.words, *words)
        torch.manual_seed(seed)
        self.mac = _controller(self.config, spec, self.row.everyone)
        self.learner: Learner = build_learner(self.config, spec=spec, mac=self.mac, device=CPU)
        fields = environment_scheme(spec, common_reward=self.config.common_reward)
        self.scheme: Scheme = fields.extend(self.mac.record_fields())
        self.updates = 0

    @property
    def mixed(self) -> bool:
        """Whether one agent learns among others."""
        return SEAT in self.scheme.fields

    @property
    def models_others(self) -> bool:
        """Whether policies infer something about the others, in an order relative to the seat."""
        return self.config.mac == "multi_module_mac"

    def train(self, batch: EpisodeBatch) -> dict[str, float]:
        """One update; what it told."""
        self.updates += 1
        progress = Progress(100 * self.updates, len(batch) * self.updates, self.updates)
        self.learner.receive(batch)
        return {k: float(v) for k, v in self.learner.train(batch, progress).items()}

    def weights(self) -> dict[str, Tensor]:
        """A copy of all that is saved, buffers included, by file and name."""
        return {
            f"{file}/{name}": value.detach().clone()
            for file, network in self.learner.networks().items()
            for name, value in network.state_dict().items()
        }

    def state(self) -> Any:
        """A copy of everything a continuation needs, as if from a file."""
        return stored(self.learner.state_dict())


def _controller(config: Config, spec: EnvSpec, everyone: bool) -> Controller:
    if config.mac == "basic_mac":
        return BasicMAC(config=config, spec=spec, device=CPU)
    lineup = EveryoneLearns(spec) if everyone else alone(spec)
    return MultiModuleMAC(config=config, spec=spec, device=CPU, lineup=lineup)


def alone(spec: EnvSpec) -> OneLearns:
    """One agent learns; nobody sits in the other seats."""
    nobody = np.full(spec.n_agents, -1, np.int64)
    players = Players([], [], spec.n_agents)
    return OneLearns(spec, "", players=players, others=nobody, seat=0)


def stored(values: Any) -> Any:
    """What a file gives back: no object is shared with what was saved."""
    file = io.BytesIO()
    torch.save(copy.deepcopy(values), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# --- batches ---------------------------------------------------------------------------------


def join(scheme: Scheme, episodes: Sequence[Mapping[str, Any]], slots: int = 0) -> EpisodeBatch:
    """Episodes of any lengths in one batch; fields that an episode does not name are zero."""
    lengths = [len(episode["terminated"]) for episode in episodes]
    batch = EpisodeBatch(scheme, batch_size=len(episodes), max_seq_length=slots or max(lengths))
    for number, (episode, length) in enumerate(zip(episodes, lengths, strict=True)):
        part = slice(number, number + 1)
        batch.update(
            {name: np.asarray(value)[None] for name, value in episode.items()},
            rows=part,
            steps=slice(0, length),
        )
    return batch


def random_batch(
    bench: Bench,
    rng: np.random.Generator,
    count: int = 6,
    *,
    ending: str = "mixed",
    steps: int | None = None,
) -> EpisodeBatch:
    """Episodes of 1 … 4 (or exactly `steps`) steps without any sense. `mixed`: some terminate and
    some are cut. Nobody can act where the game is over."""
    spec, episodes = bench.spec, []
    for _ in range(count):
        slots = 1 + (steps or int(rng.integers(1, 5)))
        avail = rng.random((slots, spec.n_agents, spec.n_actions)) < 0.6
        avail[..., 0] |= ~avail.any(-1)
        keys = rng.random(avail.shape) * avail
        ends = {"terminated": True, "truncated": False}.get(ending, rng.random() < 0.5)
        if ends:
            avail[-1] = False
        episode: dict[str, Any] = {
            "actions": keys.argmax(-1),
            "avail_actions": avail,
            "terminated": (np.arange(slots) == slots - 2) & ends,
        }
        for name, field in bench.scheme.fields.items():
            lead = () if field.episode_const else (slots,)
            shape = (*lead, *bench.scheme.item_shape(name))
            if field.dtype is torch.float32:
                episode[name] = rng.normal(size=shape).astype(np.float32)
            elif name not in episode:
                episode[name] = rng.integers(0, spec.n_agents, shape)
        episodes.append(episode)
    return join(bench.scheme, episodes)


def game_batch(bench: Bench, plays: Iterable[dict[str, np.ndarray]]) -> EpisodeBatch:
    """Episodes of the two-state game in the algorithm's own terms: the team's reward or each
    agent's, and for one agent among others every episode once from each seat."""
    episodes = []
    for play in plays:
        if bench.config.common_reward:
            play = {**play, "reward": play["reward"].sum(-1, keepdims=True)}
        if not bench.mixed:
            episodes.append(play)
            continue
        episodes += [{**play, SEAT: np.array(seat)} for seat in range(bench.spec.n_agents)]
    return join(bench.scheme, episodes)


def with_padding(batch: EpisodeBatch, extra: int, rng: np.random.Generator) -> EpisodeBatch:
    """The same episodes in a longer batch, with nonsense wherever nothing was recorded: in the
    padding, and beside the last observation, where nobody acts any more."""
    slots = batch.max_seq_length + extra
    longer = EpisodeBatch(batch.scheme, batch_size=len(batch), max_seq_length=slots)
    longer.filled[:, : batch.max_seq_length] = batch.filled
    before = torch.from_numpy(np.arange(slots) < batch.lengths.numpy()[:, None] - 1)
    for name, field in batch.scheme.fields.items():
        old, new = batch.raw(name), longer.raw(name)
        if field.episode_const:
            new.copy_(old)
            continue
        noise: Any = 50 * rng.normal(size=new.shape)
        if not new.is_floating_point():
            noise = rng.integers(0, 2 if new.dtype is torch.bool else ACTIONS - 1, new.shape)
        real = longer.filled if name in ("obs", "state", "avail_actions", "terminated") else before
        new.copy_(torch.from_numpy(noise))
        new[:, : batch.max_seq_length][real[:, : batch.max_seq_length]] = old[
            real[:, : batch.max_seq_length]
        ]
    return longer


def reordered(batch: EpisodeBatch, order: Sequence[int]) -> EpisodeBatch:
    """The same episodes in another order."""
    same: EpisodeBatch = batch[list(order)]
    return same


def reseated(bench: Bench, batch: EpisodeBatch, seats: Sequence[int]) -> EpisodeBatch:
    """Everybody in another seat: who sat in seats[n] now sits in n, in every field of agents. In
    the state, only for opponent models, which look there for what is whose; to a team the state
    is one thing."""
    order = torch.tensor(seats)
    data = {}
    for name, field in batch.scheme.fields.items():
        value = batch.raw(name)
        if name == SEAT:
            value = torch.argsort(order)[value.long()].to(value.dtype)
        elif field.group == "agents" or (name == "reward" and value.shape[-1] > 1):
            value = value[:, :, order]
        elif name == "state" and bench.models_others:
            value = value.clone()
            blocks = torch.tensor(bench.spec.agent_features)
            value[..., blocks.flatten()] = batch.raw(name)[..., blocks[order].flatten()]
        data[name] = value
    return EpisodeBatch.from_data(batch.scheme, data, batch.filled.clone())


# --- weights ---------------------------------------------------------------------------------


@torch.no_grad()
def forget_seats(bench: Bench) -> None:
    """Make weights that tell seats apart alike for all seats; targets follow."""
    agents = bench.spec.n_agents
    pairs: dict[str, Any] = {}
    for file, network in bench.learner.networks().items():
        for name, weight in network.named_parameters():
            for end, axis, start, width in bench.row.seats:
                if f"{file}/{name}".endswith(end):
                    first = start % weight.shape[axis]
                    known = weight.narrow(axis, first, agents * width)
                    blocks = known.view(
                        *known.shape[:axis], agents, width, *known.shape[axis + 1 :]
                    )
                    blocks.copy_(blocks.mean(axis, keepdim=True).expand_as(blocks).clone())
        if bench.row.pairs and "player_" in file:
            network.load_state_dict(
                pairs.setdefault(file.split("player_")[0], network.state_dict())
            )
        per_seat: Any = getattr(network, "agents", ())
        for other in per_seat:
            other.load_state_dict(per_seat[0].state_dict())
    bench.learner.after_load()


@torch.no_grad()
def tempt(bench: Bench) -> None:
    """Let what cannot be done in the two-state game, action 2, seem the best by far; a policy
    otherwise plays action 0 with `mdps.CHANCE`, whatever it sees."""
    network: Any = bench.mac.policy.network  # type: ignore[attr-defined]
    if bench.row.values == "policy":
        for weight in network.parameters():
            weight.zero_()
    outputs = [w for w in network.parameters() if w.shape == (bench.spec.n_actions,)]
    assert outputs
    for bias in outputs:
        bias.copy_(torch.tensor([np.log(mdps.CHANCE / (1 - mdps.CHANCE)), 0.0, 3.0]))
    bench.learner.after_load()


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Between two sets of weights."""
    assert one.keys() == other.keys()
    return float(sum((one[name] - other[name]).float().square().sum() for name in one) ** 0.5)
