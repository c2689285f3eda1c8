"""The arithmetic of learning, without state: episodes without their padding, targets and returns,
subgoals. No loop over time.

A batch of episodes of different lengths is mostly padding when agents get good. Learners work on
the P filled slots instead: slot (b, t) lies at offset[t] + rank(b), episodes ranked by length,
longest first, so that step t of all episodes that reach it is one contiguous piece.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Large enough to lose against any value, finite so that padding cannot make NaN.
UNAVAILABLE = -9999999.0


@dataclass(frozen=True, slots=True)
class Packing:
    """Index tensors between the padded [B, T] and the packed [P] arrangement."""

    shape: tuple[int, int]  # (B, T)
    episode: Tensor  # [P], b of every packed slot
    time: Tensor  # [P], t of every packed slot
    sizes: Tensor  # [T'], episodes that reach step t; on the CPU, never increasing
    rank: Tensor  # [P], place of the slot's episode among those that reach its step
    length: Tensor  # [P], filled slots of its episode
    now: Tensor  # [K], packed slots that are transitions
    next: Tensor  # [K], packed slots that follow them
    place: Tensor  # [P], where the slot lies when episodes are put one behind the other

    @classmethod
    def of(cls, filled_BT: Tensor, terminated_BT: Tensor) -> Packing:
        """Slots are filled from the start of an episode without gaps. The last one holds only the
        last observation, so it is a successor and never a transition; neither is a slot behind
        a termination."""
        (batch, steps), device = filled_BT.shape, filled_BT.device
        terminated = terminated_BT.cpu().numpy().astype(bool, copy=False)
        filled = filled_BT.cpu().numpy()
        if filled.all() and not terminated.any():
            return cls._of_equal(batch, steps, device)
        return cls._of_lengths((batch, steps), device, filled.sum(1), terminated)

    @classmethod
    @functools.lru_cache(maxsize=16)
    def _of_equal(cls, batch: int, steps: int, device: torch.device) -> Packing:
        """Episodes of one length, none of which terminated: many games have no others."""
        lengths, nowhere = np.full(batch, steps), np.zeros((batch, steps), np.bool_)
        with torch.inference_mode(False):  # a later pass may need gradients
            return cls._of_lengths((batch, steps), device, lengths, nowhere)

    @classmethod
    def _of_lengths(
        cls,
        shape: tuple[int, int],
        device: torch.device,
        lengths: NDArray[np.int64],
        terminated: NDArray[np.bool_],
    ) -> Packing:
        clock = np.arange(shape[1])
        order = np.argsort(-lengths, kind="stable")
        reached = clock[:, None] < lengths[order]  # [T, B]
        time, rank = reached.nonzero()
        sizes = reached.sum(1)
        sizes = sizes[sizes > 0]
        offsets = np.cumsum(sizes) - sizes
        episode = order[rank]
        usable = time + 1 < lengths[episode]
        if (terminated & (clock + 2 < lengths[:, None])).any():  # an episode goes on after its end
            usable &= ~(terminated[episode, np.maximum(time - 1, 0)] & (time > 0))
        now = usable.nonzero()[0]
        return cls._of_arrays(
            shape,
            device,
            episode=episode,
            time=time,
            sizes=sizes,
            rank=rank,
            length=lengths[episode],
            now=now,
            next=offsets[time[now] + 1] + rank[now] if len(now) else now,
            place=episode * shape[1] + time,
        )

    @classmethod
    def _of_arrays(
        cls, shape: tuple[int, int], device: torch.device, **indices: np.ndarray[Any, Any]
    ) -> Packing:
        """Made in NumPy, whose small operations cost less than torch's."""
        tensors = {name: torch.from_numpy(value) for name, value in indices.items()}
        if device.type != "cpu":
            tensors |= {n: t.to(device) for n, t in tensors.items() if n != "sizes"}
        return cls(shape=shape, **tensors)

    def per_seat(self, seats: int) -> Packing:
        """The packing of rows, slot by slot and seat by seat: every seat of an episode counts as
        an episode, so row = slot * seats + seat."""
        if seats == 1:
            return self
        each = torch.arange(seats, device=self.episode.device)

        def rows(of_slots: Tensor) -> Tensor:
            return (of_slots.unsqueeze(1) * seats + each).flatten()

        batch, steps = self.shape
        episode, time = rows(self.episode), self.time.repeat_interleave(seats)
        return Packing(
            shape=(batch * seats, steps),
            episode=episode,
            time=time,
            sizes=self.sizes * seats,
            rank=rows(self.rank),
            length=self.length.repeat_interleave(seats),
            now=rows(self.now),
            next=rows(self.next),
            place=episode * steps + time,
        )

    def without_last(self, episodes: Tensor) -> tuple[Packing, Tensor]:
        """Some of the episodes, each without its last slot (no slot of it is a transition that
        knows its successor), and where their slots lie here, [P']."""
        device, steps, sizes = self.episode.device, self.shape[1], self.sizes.numpy()
        rank_of = np.empty(sizes[0], np.int64)
        rank_of[self.episode[: sizes[0]].cpu().numpy()] = np.arange(sizes[0])
        ranks = rank_of[episodes.cpu().numpy()]
        numbers = np.argsort(ranks)
        ranks = ranks[numbers]
        here = ranks < sizes[1:, None]  # [T' - 1, episodes]
        time, rank = here.nonzero()
        slots = (np.cumsum(sizes) - sizes)[time] + ranks[rank]
        reached, episode, nothing = here.sum(1), numbers[rank], slots[:0]
        places = torch.from_numpy(slots).to(device)
        part = self._of_arrays(
            (len(episodes), steps),
            device,
            episode=episode,
            time=time,
            sizes=reached[reached > 0],
            rank=rank,
            length=self.length.cpu().numpy()[slots] - 1,
            now=nothing,
            next=nothing,
            place=episode * steps + time,
        )
        return part, places

    def living(self, alive: Tensor) -> Packing:
        """The packing of rows whose seats may leave, `alive` [P] where they still act: only those
        are transitions, and an episode of a row ends where its seat is absent first."""
        stays = alive[self.now]
        acted = torch.zeros(self.shape[0], dtype=torch.int64, device=alive.device)
        acted.index_add_(0, self.episode, alive.long())
        return replace(
            self,
            now=self.now[stays],
            next=self.next[stays],
            length=torch.minimum(self.length, acted[self.episode] + 1),
        )

    def future(self, slots: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
        """The slots 1 … horizon steps later in the same episode, [K, H], and which of them exist
        (the others repeat the last one): never past the episode's end."""
        sizes = self.sizes.to(slots.device)
        offsets = torch.cumsum(sizes, 0) - sizes
        ahead = self.time[slots].unsqueeze(1) + torch.arange(1, horizon + 1, device=slots.device)
        last = (self.length[slots] - 1).unsqueeze(1)
        exists = ahead <= last
        return offsets[ahead.minimum(last)] + self.rank[slots].unsqueeze(1), exists

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, …] -> [P, …]."""
        return padded.flatten(0, 1).index_select(0, self.place)

    def take(self, padded: Tensor, slots: Tensor) -> Tensor:
        """Some packed slots of a padded tensor, e.g. `take(reward, packing.now)`: [K, …]."""
        return padded.flatten(0, 1).index_select(0, self.place.index_select(0, slots))

    def pack_previous(self, padded: Tensor, fill: float) -> Tensor:
        """The value one step earlier, [P, …]; `fill` at an episode's first step."""
        later = self.time > 0
        earlier = padded.flatten(0, 1).index_select(0, self.place - later.long())
        return earlier.masked_fill(~later.view(-1, *[1] * (padded.dim() - 2)), fill)

    def previous(self, packed: Tensor) -> Tensor:
        """Values of the slots one step earlier, [P, …]; zeros at an episode's first step."""
        sizes = self.sizes.to(packed.device)
        first = int(sizes[0])
        later = torch.arange(first, len(packed), device=packed.device)
        shift = torch.repeat_interleave(sizes[:-1], sizes[1:])
        earlier = packed.index_select(0, later - shift)
        return torch.cat([torch.zeros_like(packed[:first]), earlier])

    def earlier(self, slots: Tensor) -> Tensor:
        """The slots one step before these; -1 where the episode began."""
        sizes, time = self.sizes.to(slots.device), self.time.index_select(0, slots)
        before = slots - sizes.index_select(0, (time - 1).clamp(min=0))
        return before.masked_fill(time == 0, -1)

    def unpack(self, packed: Tensor) -> Tensor:
        """[P, …] -> [B, T, …], zeros in the padding."""
        padded = packed.new_zeros(*self.shape, *packed.shape[1:])
        return padded.index_put((self.episode, self.time), packed)


# --- targets and returns ----------------------------------------------------------------------


def gather_actions(values_A: Tensor, actions: Tensor) -> Tensor:
    """values[..., a] for the actions taken."""
    return values_A.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def next_action_values(
    online_A: Tensor, target_A: Tensor, avail: Tensor, *, double: bool
) -> Tensor:
    """max_a Q'(s, a) over available actions; with `double` the action is chosen by the online
    network and valued by the target network."""
    if not double:
        return target_A.masked_fill(~avail, UNAVAILABLE).amax(-1)
    best = online_A.detach().masked_fill(~avail, UNAVAILABLE).argmax(-1)
    return gather_actions(target_A, best)


def td_targets(reward: Tensor, terminated: Tensor, next_values: Tensor, *, gamma: float) -> Tensor:
    """r + γ (1 - terminated) V(s'). A cut (truncated) episode is not terminated: it bootstraps.
    `terminated` is [K], or [K, N] where seats end one by one."""
    continues = _per_seat(~terminated, next_values).to(torch.float32)
    return reward + gamma * continues * next_values


def _per_seat(of_transitions: Tensor, like: Tensor) -> Tensor:
    """[..., K] as [..., K, 1] beside values [..., K, N]; [..., K, N] as it is."""
    return of_transitions.unsqueeze(-1) if of_transitions.dim() < like.dim() else of_transitions


def following_transition(packing: Packing) -> Tensor:
    """The transition behind each of the K transitions, [K]; K where the episode ends: by a
    termination or because only the last observation follows."""
    count = len(packing.now)
    number = packing.now.new_full((len(packing.time),), count)
    number[packing.now] = torch.arange(count, device=number.device)
    return number[packing.next]


def backward_sums(terms_KN: Tensor, factors_KN: Tensor, packing: Packing) -> Tensor:
    """x_t = term_t + factor_t · x_{t+1} within every episode, x = 0 behind its end; [K, N].

    Reach doubles in every round: after i rounds a transition knows the sum of its next 2^i terms
    and the product of their factors. So T steps take log2 T rounds over all transitions, no loop
    over time."""
    none = terms_KN.new_zeros(1, terms_KN.shape[1])
    sums, products = torch.cat([terms_KN, none]), torch.cat([factors_KN.expand_as(terms_KN), none])
    count = len(packing.now)
    ahead = torch.cat([following_transition(packing), packing.now.new_full((1,), count)])
    for _ in range(len(packing.sizes).bit_length()):
        sums = sums + products * sums[ahead]
        products = products * products[ahead]
        ahead = ahead[ahead]
    return sums[:-1]


def td_lambda_targets(
    reward: Tensor,
    terminated: Tensor,
    next_values_KN: Tensor,
    packing: Packing,
    *,
    gamma: float,
    td_lambda: float,
) -> Tensor:
    """G_t = r_t + γ (1 - d_t) [(1 - λ) V_{t+1} + λ G_{t+1}], [K, N].

    `reward` is [K, 1 or N], `terminated` [K] or, where seats end one by one, [K, N], and
    `next_values_KN` holds V_{t+1}. G after an episode's last transition is V there, so a cut
    episode bootstraps. What is given after a termination is not looked at, whatever it is."""
    ends = (following_transition(packing) == len(packing.now)).unsqueeze(1)
    over = _per_seat(terminated.bool(), next_values_KN)
    values = next_values_KN.masked_fill(over, 0.0)
    terms = reward + gamma * torch.where(ends, values, (1 - td_lambda) * values)
    factors = torch.full_like(terms, gamma * td_lambda).masked_fill(over, 0.0)
    return backward_sums(terms, factors, packing)


def generalised_advantages(
    reward_PN: Tensor,
    terminated_P: Tensor,
    values_PN: Tensor,
    packing: Packing,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """A_t = δ_t + γλ A_{t+1} with δ_t = r_t + γ (1 - d_t) V(s_{t+1}) - V(s_t), [P, N]; zero at
    slots that are no transitions, such as the last of an episode: there the sum ends. An episode
    that was cut bootstraps from the value of its last slot, one that terminated does not.
    `terminated_P` is [P], or [P, N] where seats end one by one.

    All episodes, agents and steps at once (`backward_sums`). No gradient passes through it."""
    values, reward = values_PN.detach(), reward_PN.detach()
    now, following = packing.now, packing.next
    errors = td_targets(reward[now], terminated_P[now], values[following], gamma=gamma)
    errors = errors - values[now]
    advantages = torch.zeros_like(values)
    factors = torch.full_like(errors, gamma * lam)
    factors = factors.masked_fill(_per_seat(terminated_P[now].bool(), factors), 0.0)
    advantages[now] = backward_sums(errors, factors, packing)
    return advantages


# --- subgoals: which future state to head for, how far two Gaussians are apart, how often they hit


def gaussian_kl(mean: Tensor, log_var: Tensor, other_mean: Tensor, other_log_var: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(μ', σ'²)) of diagonal Gaussians, summed over the last axis."""
    gap = (mean - other_mean).square() * torch.exp(-other_log_var)
    ratio = torch.exp(log_var - other_log_var)
    return 0.5 * (other_log_var - log_var + ratio + gap - 1.0).sum(-1)


def sample_gaussian(mean: Tensor, log_var: Tensor, generator: torch.Generator) -> Tensor:
    """μ + σ·ε with the gradient of both."""
    noise = torch.randn(mean.shape, generator=generator).to(mean.device)
    return mean + torch.exp(0.5 * log_var) * noise


def mean_over_available(values_A: Tensor, avail_A: Tensor) -> Tensor:
    """V = mean of Q over available actions."""
    allowed = avail_A.to(values_A.dtype)
    return (values_A * allowed).sum(-1) / allowed.sum(-1).clamp(min=1.0)


def max_over_available(values_A: Tensor, avail_A: Tensor) -> Tensor:
    """V = max of Q over available actions."""
    return values_A.masked_fill(~avail_A, -torch.inf).amax(-1)


def select_subgoal(
    values_KH: Tensor,
    exists_KH: Tensor,
    *,
    mode: str,
    fixed_k: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Which of the H candidates is the subgoal, [K]: the best (optimistic) or worst
    (conservative) by value, a random one, or the one fixed_k steps ahead (the last that exists,
    near the episode's end)."""
    if mode == "optimistic":
        return values_KH.masked_fill(~exists_KH, -torch.inf).argmax(-1)
    if mode == "conservative":
        return values_KH.masked_fill(~exists_KH, torch.inf).argmin(-1)
    if mode == "random":
        keys = torch.rand(exists_KH.shape, generator=generator).to(exists_KH.device)
        return keys.masked_fill(~exists_KH, -1.0).argmax(-1)
    last = exists_KH.sum(-1) - 1
    return last.clamp(max=fixed_k - 1, min=0)


def hit_ratio(predicted: Sequence[Hashable], trajectory: Sequence[Hashable]) -> float:
    """|{predicted states that occur later than the step of their prediction}| / |trajectory|.

    predicted[t] was made at trajectory[t] and hits if it occurs strictly later; each state counts
    once. Predictions s3, s1, s5, s5 on s1 … s5 give {s3, s5}, 2 / 5 = 0.4.
    """
    hits = {state for t, state in enumerate(predicted) if state in trajectory[t + 1 :]}
    return len(hits) / len(trajectory)


# Variance of a feature, scaled to about 1, below which it counts as constant.
CONSTANT = 1e-4
# Smallest variance that errors of other columns are divided by: those of what hardly ever happens
# would drown the rest.
SMALLEST = 1e-2


def variance_by_kind(wanted_RC: Tensor, kinds_C: Tensor) -> Tensor:
    """What square errors of every column are divided by: the mean variance of the columns of its
    kind, or its own where it has none (kind -1), [C]."""
    variance = wanted_RC.var(0, unbiased=False)
    found = variance.clamp(min=SMALLEST)
    for kind in range(int(kinds_C.max()) + 1):
        same = kinds_C == kind
        found = torch.where(same, variance[same].mean().clamp(min=CONSTANT), found)
    return found


def explained_variance(
    found_RJW: Tensor, wanted_RJW: Tensor, counts_RJ: Tensor | None = None
) -> Tensor:
    """R² of each kind of feature w, over all rows and all j that count; the mean over the kinds.

    A constant guess explains 0, a perfect one 1. Every (j, w) is measured against its own mean. A
    kind that is guessed worse than by its mean explains 0; kinds that do not vary are left out.
    """
    counts = torch.ones_like(wanted_RJW[..., :1])
    if counts_RJ is not None:
        counts = counts_RJ.unsqueeze(-1).to(wanted_RJW.dtype)
    mean = (counts * wanted_RJW).sum(0) / counts.sum(0).clamp(min=1)
    spread = (counts * (wanted_RJW - mean).square()).sum((0, 1))
    error = (counts * (found_RJW - wanted_RJW).square()).sum((0, 1))
    varies = spread > CONSTANT * counts.sum()
    if not varies.any():
        return torch.ones(())
    return (1 - error[varies] / spread[varies]).clamp(min=0).mean()


# --- goals ------------------------------------------------------------------------------------


def hindsight_goals(reached_PN: Tensor, packing: Packing) -> Tensor:
    """The first goal that each seat reaches at a slot or later in the same episode, -1 if none,
    [P, N]; `reached_PN` holds what was reached with every slot's step, -1 for nothing."""
    steps = packing.shape[1]
    padded = packing.unpack(reached_PN.long() + 1)  # padding is 0, which is nothing
    number = torch.arange(steps, device=padded.device).view(1, -1, 1)
    when = torch.where(padded > 0, number, steps)
    first = when.flip(1).cummin(1).values.flip(1)
    found = padded.gather(1, first.clamp(max=steps - 1))
    return packing.pack(torch.where(first < steps, found - 1, -1))
