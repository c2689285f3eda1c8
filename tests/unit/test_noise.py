"""Noise of whole episodes: the kernel's is NumPy's, it is normal, and a generator decides it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.device import use_kernels
from omg.modules.kernels.noise import (
    NoiseKernel,
    draw_rows,
    in_numpy,
    new_key,
    noise,
    noise_kernel,
)

needs_compiler = pytest.mark.skipif(noise_kernel()[0] is None, reason="no C compiler here")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kernel() -> NoiseKernel:
    found, _ = noise_kernel()
    assert found is not None
    return found


@needs_compiler
@given(
    rows=st.integers(1, 90),
    width=st.integers(1, 70),
    threads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_the_kernel_makes_the_noise_that_numpy_makes(
    rows: int, width: int, threads: int, seed: int
) -> None:
    key, before = new_key(generator(seed)), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = kernel().fill((rows, width), key)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, in_numpy((rows, width), key), atol=5e-6, rtol=1e-5)


@needs_compiler
@given(
    rows=st.integers(1, 90),
    places=st.integers(1, 20),
    width=st.sampled_from([16, 48, 64]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_draws_from_rows_of_a_table_are_mean_and_deviation_times_noise(
    rows: int, places: int, width: int, threads: int, seed: int
) -> None:
    torch.manual_seed(seed)
    mean, log_var = torch.randn(places, width), 3 * torch.randn(places, width)
    chosen, before = torch.randint(places, (rows,)), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = draw_rows(mean, log_var, chosen, generator(seed))
    finally:
        torch.set_num_threads(before)
    made = in_numpy((rows, width), new_key(generator(seed)))
    expected = mean[chosen] + torch.exp(0.5 * log_var[chosen]) * made
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=2e-5)


@pytest.mark.parametrize("fast", [True, False], ids=["kernel", "numpy"])
def test_noise_has_the_moments_and_tails_of_a_normal_distribution(fast: bool) -> None:
    use_kernels(fast)
    try:
        made = noise((1000, 1000), generator()).double().numpy()
    finally:
        use_kernels(True)
    assert abs(made.mean()) < 0.005
    assert abs(made.std() - 1) < 0.005
    assert abs((made**3).mean()) < 0.02
    assert abs((made**4).mean() - 3) < 0.05
    for limit, share in ((1, 0.317311), (2, 0.045500), (3, 0.002700)):
        assert abs((np.abs(made) > limit).mean() - share) < 0.002
    assert made.max() > 4
    assert made.min() < -4
    rows, columns = np.corrcoef(made[:40]), np.corrcoef(made[:, :40].T)
    for found in (rows, columns, np.corrcoef(made[:40] ** 2)):
        assert np.abs(found - np.eye(40)).max() < 0.16
    flat = made.ravel()
    for lag in (1, 15, 16, 17, 32, 64):  # a pair lies 16 apart
        assert abs((flat[lag:] * flat[:-lag]).mean()) < 0.005


def test_a_generator_decides_the_noise_and_goes_on() -> None:
    mine, same, other = generator(1), generator(1), generator(2)
    first, second = noise((7, 33), mine), noise((7, 33), mine)
    assert torch.equal(first, noise((7, 33), same))
    assert torch.equal(second, noise((7, 33), same))
    assert not torch.isclose(first, second).any(), "the next noise is another"
    assert not torch.isclose(first, noise((7, 33), other)).any()


@needs_compiler
def test_threads_change_no_bit() -> None:
    table = torch.randn(50, 64)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        rows = torch.arange(50).repeat(5)
        found.append((noise((99, 31), generator()), draw_rows(table, table, rows, generator())))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for pair in found[1:] for a, b in zip(found[0], pair, strict=True))


@needs_compiler
def test_a_row_that_is_not_there_is_refused() -> None:
    table = torch.randn(4, 16)
    for row in (-1, 4):
        with pytest.raises(IndexError, match="not there"):
            draw_rows(table, table, torch.tensor([row]), generator())
    with pytest.raises(ValueError, match="do not fit"):
        kernel().draw(table, table[1:], torch.tensor([0]), new_key(generator()))


def test_a_width_that_the_kernel_does_not_take_is_drawn_by_torch() -> None:
    mean, log_var, rows = torch.randn(5, 7), torch.randn(5, 7), torch.tensor([4, 0, 4])
    made = in_numpy((3, 7), new_key(generator(3)))
    expected = mean[rows] + torch.exp(0.5 * log_var[rows]) * made
    torch.testing.assert_close(draw_rows(mean, log_var, rows, generator(3)), expected)
