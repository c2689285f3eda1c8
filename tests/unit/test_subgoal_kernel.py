"""OMG's inference and its loss in the kernel against torch, and the memory of the prior's encodings
against computing them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from omg.components.trajectories import ReplayBuffer
from omg.functional import gaussian_kl
from omg.learners.base import Progress
from omg.learners.prior_memory import Encoded
from omg.learners.q_learner import OMGLearner
from omg.modules.device import use_kernels
from omg.modules.kernels.subgoal import Lessons, SubgoalKernel, in_torch, subgoal_kernel
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.opponents.pool import OpponentPool

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout

pytestmark = pytest.mark.skipif(subgoal_kernel()[0] is None, reason="no C compiler here")


def kernel() -> SubgoalKernel:
    found, _ = subgoal_kernel()
    assert found is not None
    return found


def in_both(
    rows: int, seen: int, *, drawn: bool = True, threads: int = 1, seed: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """Values, terms and gradients by the kernel and by torch; log-variances reach both limits."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    dims = (seen, 16, 48, 32, 16)
    weights = [random(*shape) / 3 for shape in SubgoalKernel._shapes(dims)]
    weights[5][16:24] = 9.0
    weights[5][24:28] = -20.0
    own, condition = random(rows, seen), random(rows, dims[2])
    noise = random(rows, dims[4]) if drawn else None
    prior = random(rows, dims[4]), random(rows, dims[4]) / 2
    now = torch.randperm(rows, generator=generator)[: max(1, 3 * rows // 4)]
    chosen = torch.randint(rows, (len(now),), generator=generator)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        passed = kernel().forward(own, condition, noise, weights)
        lessons = Lessons(now, chosen, *prior)
        terms, slope, slopes = kernel().fit(own, passed, lessons, weights, kl_weight=0.3)
    finally:
        torch.set_num_threads(before)
    leaves = [tensor.requires_grad_() for tensor in (condition, *weights)]
    mean, log_var, subgoal, decoded, target = in_torch(own, condition, noise, weights)
    kl = gaussian_kl(mean[now], log_var[now], prior[0][chosen], prior[1][chosen]).mean()
    recon = (decoded - target)[now].square().mean()
    expected = torch.autograd.grad(recon + 0.3 * kl, leaves)
    found = [*passed[:3], terms[0], terms[1], slope, *slopes]
    return found, [mean, log_var, subgoal, recon, kl, *expected]


@given(
    rows=st.integers(1, 130),
    seen=st.integers(1, 40),
    drawn=st.booleans(),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_torch(
    rows: int, seen: int, drawn: bool, threads: int, seed: int
) -> None:
    for found, expected in zip(
        *in_both(rows, seen, drawn=drawn, threads=threads, seed=seed), strict=True
    ):
        torch.testing.assert_close(found, expected.detach(), atol=2e-5, rtol=2e-4)


def test_a_row_that_is_not_there_is_refused() -> None:
    dims = (3, 16, 16, 16, 16)
    weights = [torch.randn(shape) for shape in SubgoalKernel._shapes(dims)]
    own, table = torch.randn(4, 3), torch.randn(4, 16)
    passed = kernel().forward(own, torch.randn(4, 16), None, weights)
    lessons = Lessons(torch.tensor([4]), torch.tensor([0]), table, table)
    with pytest.raises(ValueError, match="no row"):
        kernel().fit(own, passed, lessons, weights, kl_weight=1.0)
    with pytest.raises(ValueError, match="do not fit"):
        kernel().forward(own, torch.randn(5, 16), None, weights)


@pytest.mark.parametrize(
    ("dims", "taken"),
    [
        ((3, 32, 48, 32, 16), True),
        ((3, 48, 16, 64, 32), True),
        ((3, 32, 48, 32, 8), False),
        ((3, 32, 48, 32, 24), False),
        ((3, 32, 40, 32, 16), False),
        ((3, 24, 48, 32, 16), False),
        ((3, 32, 48, 2048, 16), False),
    ],
)
def test_widths_that_would_not_fit_a_register_or_the_stack_are_left_to_torch(
    dims: tuple[int, ...], taken: bool
) -> None:
    weights = [torch.randn(*shape) for shape in SubgoalKernel._shapes(dims)]
    own, condition = torch.randn(5, dims[0]), torch.randn(5, dims[2])
    assert kernel().fits(own, weights) is taken
    if not taken:
        with pytest.raises(ValueError, match="do not fit"):
            kernel().forward(own, condition, None, weights)
    prior = list(PriorVAE(13, dims[3], dims[4]).encoder.parameters())
    assert kernel().fits(own, prior) is (dims[3] <= 1024 and dims[4] % 16 == 0)


def test_what_the_prior_makes_of_a_state_does_not_depend_on_the_states_beside_it() -> None:
    vae = PriorVAE(13, 48, 32)
    weights, states = list(vae.encoder.parameters()), torch.randn(77, 13)
    together = kernel().prior(states, weights)
    for found, expected in zip(together, vae.encode(states), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    for part in (slice(0, 1), slice(5, 6), slice(40, 77)):
        for all_rows, own in zip(together, kernel().prior(states[part], weights), strict=True):
            assert torch.equal(all_rows[part], own)


def omg(tmp_path: Path, *words: str) -> tuple[Any, OMGLearner, list[Any]]:
    """Controller, learner and some finished episodes of a small game."""
    if not (tmp_path / "pool").exists():
        OpponentPool.create(tmp_path / "pool").add_script("nearest_food")
    small = ["--am_hidden_dim=128", "--subgoal_dim=16", "--config=iql_omg", *words]
    rollout = make_rollout([*SMALL, *small, f"--opponent_pool={tmp_path / 'pool'}", *TASK])
    mac: Any = rollout.mac
    learner = OMGLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
    return mac, learner, [f.episodes for f in collect(rollout, 60)]


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--subgoal_posterior=mean",)], ids=["sample", "mean"])
def test_updates_by_the_kernel_are_those_of_torch(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, calls, fit = [], [], SubgoalKernel.fit
    monkeypatch.setattr(
        SubgoalKernel, "fit", lambda *given, **named: calls.append(1) or fit(*given, **named)
    )
    for fast in (True, False):
        use_kernels(fast)
        try:
            mac, learner, episodes = omg(tmp_path, *words)
            batch = max(episodes, key=len)
            metrics = [learner.train(batch, Progress(10**6, n, n)) for n in range(3)]
        finally:
            use_kernels(True)
        values = {**mac.model.state_dict(), **mac.policy.network.state_dict()}
        found.append((values, metrics))
    assert len(calls) == 3, "the kernel was asked, and only where it may be"
    for key, value in found[0][0].items():
        torch.testing.assert_close(value, found[1][0][key], atol=2e-5, rtol=1e-3)
    for fast_ones, slow_ones in zip(found[0][1], found[1][1], strict=True):
        for key in ("am_loss", "am_recon", "am_kl", "am_posterior_std", "am_active_dims"):
            torch.testing.assert_close(fast_ones[key], slow_ones[key], atol=1e-4, rtol=1e-3)


def filled(mac: Any, episodes: list[Any], capacity: int) -> ReplayBuffer:
    buffer = ReplayBuffer(
        episodes[0].scheme, capacity=capacity, max_seq_length=mac.spec.episode_limit + 1
    )
    for some in episodes:
        buffer.insert_episode_batch(some)
    return buffer


def gathered(encoded: Encoded) -> list[Tensor]:
    """Mean and log-variance of every row."""
    return [table[encoded.rows] for table in (encoded.mean, encoded.log_var)]


@pytest.mark.long
def test_the_memory_of_the_prior_is_equal_to_the_prior_in_every_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mac, learner, episodes = omg(tmp_path, "--buffer_size=7")
    memory: Any = learner._model._priors  # type: ignore[attr-defined]
    computed: list[int] = []
    prior = SubgoalModel.prior
    monkeypatch.setattr(
        SubgoalModel, "prior", lambda m, rows: computed.append(len(rows.own)) or prior(m, rows)
    )
    buffer, rng = filled(mac, episodes[:3], 7), np.random.default_rng(0)

    def check(size: int) -> int:
        """How many rows were computed for a sample, of how many."""
        played = mac.trajectories(buffer.sample(size, rng))
        rows = mac.policy.rows.stored(played)
        computed.clear()
        found = gathered(memory.of(played, rows))
        spent = sum(computed)
        for mine, theirs in zip(found, prior(mac.model, rows), strict=True):
            assert torch.equal(mine, theirs)
        return spent

    held = buffer.episodes_in_buffer
    assert check(held) > 0
    assert check(held) == 0
    for some in episodes[3:]:  # wraps around: old places, new episodes
        buffer.insert_episode_batch(some)
        for _ in range(3):
            check(min(3, buffer.episodes_in_buffer))
    check(7)
    assert check(7) == 0
    buffer.load_state_dict(buffer.state_dict())
    assert check(7) > 0
    assert check(7) == 0
    with torch.no_grad():
        next(mac.model.vae.parameters()).mul_(1.5)
    assert check(7) > 0
    assert check(7) == 0


@pytest.mark.long
def test_training_with_the_memory_is_training_without_it(tmp_path: Path) -> None:
    weights = []
    for numbered in (True, False):
        mac, learner, episodes = omg(tmp_path)
        buffer, rng = filled(mac, episodes, 50), np.random.default_rng(0)
        for update in range(4):
            batch = buffer.sample(4, rng)
            batch.numbers = batch.numbers if numbered else None
            learner.train(batch, Progress(10**6, update, update))
        weights.append({**mac.model.state_dict(), **mac.policy.network.state_dict()})
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())


def test_two_episodes_in_one_place_are_not_remembered(tmp_path: Path) -> None:
    mac, learner, episodes = omg(tmp_path, "--buffer_size=5")
    memory: Any = learner._model._priors  # type: ignore[attr-defined]
    batch = max(episodes, key=len)
    batch.numbers = np.arange(len(batch)) * 5  # a larger buffer than the configuration says
    played = mac.trajectories(batch)
    rows = mac.policy.rows.stored(played)
    found = gathered(memory.of(played, rows))
    for mine, theirs in zip(found, mac.model.prior(rows), strict=True):
        assert torch.equal(mine, theirs)
