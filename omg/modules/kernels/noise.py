"""Standard normal noise of whole episodes, and draws from Gaussians with it. A generator gives a
key, and the noise is a function of that: the same with any number of threads, and without the
kernel."""

from __future__ import annotations

import ctypes
from math import prod, tau
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from omg.modules.device import (
    Found,
    agreed,
    kernel_threads,
    largest_difference,
    load_kernel,
    plain,
    pointer,
    switched,
)

Words: TypeAlias = npt.NDArray[np.uint32]
HALF = 16  # numbers that lie together: cosines or sines of a pair


class NoiseKernel:
    """Calls into the compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def fill(self, shape: tuple[int, ...], key: Tensor) -> Tensor:
        """Noise in order, of any shape."""
        found = torch.empty(shape)
        count, parts = ctypes.c_int64(found.numel()), kernel_threads()
        self._library.noise_fill(count, parts, pointer(key), pointer(found))
        return found

    def draw(self, mean: Tensor, log_var: Tensor, rows: Tensor, key: Tensor) -> Tensor:
        """Draws from the Gaussians [V, G] in some rows of a table, [R, G]."""
        (places, width), parts = mean.shape, kernel_threads()
        rows = rows.contiguous()
        agreed(
            *(plain(mean, log_var), mean.shape == log_var.shape, width % HALF == 0),
            *(rows.dtype == torch.int64, rows.is_cpu, rows.ndim == 1),
        )
        found = mean.new_empty(len(rows), width)
        if self._library.noise_draw(
            *(ctypes.c_int64(len(rows)), ctypes.c_int64(places), width, parts, pointer(key)),
            *map(pointer, (rows, mean, log_var, found)),
        ):
            raise IndexError("a draw is from a row that is not there")
        return found


def _mixed(x: Words) -> Words:
    """A hash of 32 bits: every bit of x changes every bit of it half the time."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    mixed: Words = x ^ (x >> np.uint32(16))
    return mixed


def in_numpy(shape: tuple[int, ...], key: Tensor) -> Tensor:
    """The same noise without the kernel."""
    first, second, third = key.numpy().view(np.uint32)
    pairs = np.arange(-(-prod(shape) // (2 * HALF)) * HALF, dtype=np.uint32)
    both = _mixed(pairs + first)
    one, two = (x >> np.uint32(8) for x in (_mixed(both ^ second), _mixed(both + third)))
    unit = np.float32(2.0**-24)
    size = np.sqrt(-2 * np.log((one.astype(np.float32) + 1) * unit))
    angle = np.float32(tau) * (two.astype(np.float32) * unit)
    parts = size * np.cos(angle), size * np.sin(angle)
    made = np.stack([part.reshape(-1, HALF) for part in parts], 1)
    return torch.from_numpy(made.reshape(-1)[: prod(shape)].reshape(shape))


def new_key(generator: torch.Generator) -> Tensor:
    """The next one, three words of 32 bits."""
    return torch.randint(-(2**31), 2**31, (3,), generator=generator).to(torch.int32)


def noise(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard normal numbers, on the CPU."""
    key, (kernel, _) = new_key(generator), noise_kernel()
    return in_numpy(shape, key) if kernel is None else kernel.fill(shape, key)


def draw_rows(mean: Tensor, log_var: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from the Gaussians [V, G] in some rows [R] of a table, [R, G]; without gradients."""
    kernel, _ = noise_kernel()
    if kernel is not None and plain(mean, log_var) and mean.shape[-1] % HALF == 0:
        return kernel.draw(mean, log_var, rows, new_key(generator))
    shape = len(rows), mean.shape[-1]
    made = noise(shape, generator).to(mean.device)
    mean, log_var = (value.detach().index_select(0, rows) for value in (mean, log_var))
    return mean + torch.exp(0.5 * log_var) * made


def _self_test(kernel: NoiseKernel) -> float:
    """Largest difference to NumPy and torch on small cases."""
    generator = torch.Generator().manual_seed(0)
    key, rows = new_key(generator), torch.tensor([4, 0, 4, 1, 2])
    mean, log_var = (torch.randn(5, 48, generator=generator) for _ in range(2))
    drawn = mean[rows] + torch.exp(0.5 * log_var[rows]) * in_numpy((5, 48), key)
    pairs = [(kernel.draw(mean, log_var, rows, key), drawn)]
    pairs += [(kernel.fill((n, 77), key), in_numpy((n, 77), key)) for n in (1, 50)]
    return largest_difference(pairs)


@switched
def noise_kernel() -> Found[NoiseKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("noise.c", NoiseKernel, _self_test)
