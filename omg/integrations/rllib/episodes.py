"""Whole episodes of all agents, taken from what RLlib's runners deliver; never played again.

RLlib cuts episodes into chunks. Here a chunk becomes arrays, chunks of one episode are joined, and
only an episode with its beginning and its end becomes an `EpisodeBatch`. A chunk whose beginning is
missing is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from omg.components.episodes import EpisodeBatch, environment_scheme, numpy_dtype
from omg.integrations.rllib.env import CUT, REACHED, seat_of
from omg.integrations.rllib.layout import ALIVE, AVAIL, OBS, SLOTS, STATE, Layout
from omg.types import EnvSpec, OmgError

Arrays = dict[str, NDArray[Any]]
LOGITS = "logits"
SEEN = {"obs": OBS, "state": STATE, "avail_actions": AVAIL, "alive": ALIVE}  # field -> shown as
# How many unfinished episodes are kept; those of runners that died never finish.
PENDING = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """Steps `start` to `start + steps` of an episode: a row for each, and one of the last view."""

    episode: str
    start: int
    steps: int
    ended: bool
    arrays: Arrays

    @property
    def whole(self) -> bool:
        """Whether it is an episode from its beginning to its end."""
        return self.ended and self.start == 0

    def followed_by(self, other: Chunk) -> Chunk:
        """Both as one; the view between them is the same in both."""
        arrays = {
            name: np.concatenate([value[:-1], other.arrays[name]])
            for name, value in self.arrays.items()
        }
        return replace(self, steps=self.steps + other.steps, ended=other.ended, arrays=arrays)


def keep_truncations(episode: MultiAgentEpisode) -> None:
    """Where some agents left and the time limit ends the game for the others, RLlib notes a
    termination for all. Give the others their truncation back, so that they bootstrap; who left
    with the last step was terminated."""
    for own in episode.agent_episodes.values():
        infos = own.get_infos() if own.is_done else []
        if infos:
            cut = bool(infos[-1].get(CUT))
            own.is_terminated, own.is_truncated = not cut, cut
            if cut:
                episode.is_terminated, episode.is_truncated = False, True


def chunk_of(episode: MultiAgentEpisode, layout: Layout, *, logits: bool = False) -> Chunk:
    """The fields of our scheme, as the agents' own episodes hold them; with `logits`, also what
    the policies gave out. Who was present until the end saw every moment. A seat that has left
    takes action 0 and earns nothing."""
    steps = len(episode)
    if steps == 0 or not episode.agent_episodes:
        raise OmgError("An episode without a step holds nothing. Give one that was played.")
    arrays = _blank(steps + 1, layout.spec, logits=logits)
    cut = False
    for agent, own in episode.agent_episodes.items():
        seat, length = seat_of(str(agent)), len(own)
        if length > steps:
            raise OmgError(
                f"{agent} has {length} steps in an episode of {steps}: RLlib's learner has "
                "lengthened it. Read episodes before the learner does."
            )
        shown = layout.parts(np.asarray(own.get_observations()))
        infos = own.get_infos()[1:]
        at = np.arange(length + 1), shown[SLOTS].astype(np.int64).reshape(-1) - 1
        for field, name in SEEN.items():
            arrays[field][: length + 1] = shown[name][at]
        arrays["actions"][:length, seat] = _flat(own.get_actions())
        arrays["reward"][:length, seat] = _flat(own.get_rewards())
        arrays["reached"][:length, seat] = [info.get(REACHED, -1) for info in infos]
        cut |= bool(infos and infos[-1].get(CUT))
        if logits:
            told = own.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS)
            arrays[LOGITS][:length, seat] = np.asarray(told)
    arrays["terminated"][steps - 1] = episode.is_done and not cut
    return Chunk(str(episode.id_), episode.env_t_started, steps, bool(episode.is_done), arrays)


def _blank(slots: int, spec: EnvSpec, *, logits: bool) -> Arrays:
    agents, actions = spec.n_agents, spec.n_actions
    blank: Arrays = {
        "obs": np.zeros((slots, agents, spec.obs_dim), np.float32),
        "state": np.zeros((slots, spec.state_dim), np.float32),
        "avail_actions": np.zeros((slots, agents, actions), np.bool_),
        "actions": np.zeros((slots, agents), np.int64),
        "reward": np.zeros((slots, agents), np.float32),
        "terminated": np.zeros(slots, np.bool_),
        "alive": np.zeros((slots, agents), np.bool_),
        "reached": np.full((slots, agents), -1, np.int64),
    }
    if logits:
        blank[LOGITS] = np.zeros((slots, agents, actions), np.float32)
    return blank


def _flat(values: Any) -> NDArray[Any]:
    return np.asarray(values).reshape(-1)


def episode_batch(fields: Mapping[str, ArrayLike], spec: EnvSpec) -> EpisodeBatch:
    """One whole episode as our learners and buffers take it, from plain arrays by field: T + 1
    rows of what was seen (`obs`, `state`, `avail_actions`, `alive`), T or T + 1 of what was done
    (`actions`, `reward`, `terminated`, `reached`)."""
    scheme = environment_scheme(spec, common_reward=False)
    missing = sorted(scheme.fields.keys() - fields.keys())
    if missing:
        raise OmgError(f"The episode has no field '{missing[0]}'. Give {', '.join(scheme.fields)}.")
    slots = len(np.asarray(fields["obs"]))
    data = {}
    for name, field in scheme.fields.items():
        given = np.asarray(fields[name])
        shape = (slots, *scheme.item_shape(name))
        if len(given) not in (slots - 1, slots) or given.shape[1:] != shape[1:]:
            raise OmgError(
                f"The episode's field '{name}' is {given.shape}, not {shape}. Give one row per "
                "slot: a step each and one for the last view."
            )
        rows = np.full(shape, -1 if name == REACHED else 0, numpy_dtype(field.kept_as))
        rows[: len(given)] = given
        data[name] = torch.from_numpy(rows).unsqueeze(0)
    return EpisodeBatch.from_data(scheme, data, torch.ones((1, slots), dtype=torch.bool))


def whole_episode(episode: MultiAgentEpisode | Chunk, layout: Layout) -> EpisodeBatch:
    """An episode that was played from its beginning to its end; anything less is refused."""
    chunk = episode if isinstance(episode, Chunk) else chunk_of(episode, layout)
    if not chunk.whole:
        part = f"steps {chunk.start} to {chunk.start + chunk.steps}"
        raise OmgError(
            f"Episode {chunk.episode} is a fragment ({part}{', not its end' * (not chunk.ended)}). "
            "Join its chunks with EpisodeAssembler, or sample complete_episodes."
        )
    return episode_batch(chunk.arrays, layout.spec)


class EpisodeAssembler:
    """Joins the chunks of episodes and hands out those that are whole. `refused` counts chunks
    whose beginning was never seen, and unfinished episodes that were given up."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._pending: dict[str, Chunk] = {}
        self.refused = 0

    def add(self, episodes: Iterable[MultiAgentEpisode]) -> list[EpisodeBatch]:
        """The episodes that are whole now."""
        found = []
        for episode in episodes:
            if len(episode):
                whole = self._joined(chunk_of(episode, self._layout))
                found += [] if whole is None else [whole_episode(whole, self._layout)]
        while len(self._pending) > PENDING:
            self._pending.pop(next(iter(self._pending)))
            self.refused += 1
        return found

    def _joined(self, chunk: Chunk) -> Chunk | None:
        before = self._pending.pop(chunk.episode, None)
        reached = 0 if before is None else before.start + before.steps
        if chunk.start != reached:
            self.refused += 1
            return None
        chunk = chunk if before is None else before.followed_by(chunk)
        if chunk.whole:
            return chunk
        self._pending[chunk.episode] = chunk
        return None
