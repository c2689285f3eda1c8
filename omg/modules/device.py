"""What the machine offers: device, threads, memory; and how our C kernels for networks are loaded
(`omg.compiled` compiles and keeps them)."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from omg import compiled
from omg.compiled import Found, say_once, switched, use_kernels
from omg.config.schema import Config
from omg.types import OmgError

__all__ = ["Found", "say_once", "switched", "use_kernels"]

K = TypeVar("K")

TOLERANCE = 1e-4  # of a self-test
FLAGS = compiled.NETWORK_FLAGS
_threads = 0  # of the kernels; 0: as many as torch has


def kernel_threads() -> int:
    """How many threads share the work of a kernel."""
    return _threads or torch.get_num_threads()


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where a tensor's numbers lie; the tensor must live as long as it is used."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def pointers(tensors: Iterable[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    """An array of them."""
    found = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    return (ctypes.c_void_p * len(found))(*found)


@functools.cache
def load_library(source_name: str) -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None and the reason why there is none. One that computes in parts
    (`parts.h`) is given the pool of threads that all share."""
    source = Path(__file__).with_name("kernels") / source_name
    library, reason = compiled.load_library(source, FLAGS)
    if library is not None and hasattr(library, "use_pool"):
        pool, _ = load_library("parts.c")  # without it parts are computed one after the other
        if pool is not None:
            library.use_pool(pool.in_parts)
    return library, reason


def load_kernel(
    source: str, make: Callable[[ctypes.CDLL], K], self_test: Callable[[K], float]
) -> Found[K]:
    """A kernel after its self-test (its largest difference to torch), or None and the reason."""

    def test(kernel: K) -> float:
        with torch.inference_mode(False):
            return self_test(kernel)

    library, reason = load_library(source)
    return compiled.checked(
        library, reason, make=make, self_test=test, tolerance=TOLERANCE, name=source
    )


def largest_difference(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Of a self-test; not a number where one of the tensors holds such a thing."""
    return float(torch.stack([(a - b).detach().abs().max() for a, b in pairs]).max())


def difference_with_gradients(found: Tensor, expected: Tensor, leaves: Sequence[Tensor]) -> float:
    """The largest difference of a self-test's values and of their gradients."""
    mine, theirs = (torch.autograd.grad(t.square().mean(), leaves) for t in (found, expected))
    return largest_difference([(found, expected), *zip(mine, theirs, strict=True)])


def plain(*tensors: Tensor) -> bool:
    """Whether the kernels can read these: floats of 32 bits on the CPU, without gaps."""
    for tensor in tensors:  # no generator: this is asked for every weight of every update
        if not (tensor.is_cpu and tensor.dtype is torch.float32 and tensor.is_contiguous()):
            return False
    return True


def agreed(*facts: bool) -> None:
    """Shapes are checked before a pointer is handed on."""
    if not all(facts):
        raise ValueError("the shapes of inputs and weights do not fit together")


def use_threads(count: int, *, torch_too: bool) -> None:
    """So many for the kernels and, unless they are to keep to one, for torch's own operations."""
    global _threads
    _threads = 0 if torch_too else count
    torch.set_num_threads(count if torch_too else 1)


def set_up_torch(config: Config) -> None:
    """Threads (0: torch's own choice) and whether our kernels are used. Where kernels compute the
    networks, torch's own operations are small: to wake a second thread for them costs more than it
    brings, so they keep to one."""
    cores = os.cpu_count() or 1
    if config.torch_threads > max(64, 4 * cores):  # the system may refuse to start them
        raise OmgError(
            f"torch_threads={config.torch_threads}, and this machine has {cores} cores. Use at "
            "most that many."
        )
    use_kernels(config.use_kernels)
    if config.torch_threads:
        use_threads(config.torch_threads, torch_too=not _by_kernels(config))
    elif _threads:  # of a run before
        use_threads(_threads, torch_too=True)


def _by_kernels(config: Config) -> bool:
    """Whether several threads are asked for, and kernels compute the agents' networks."""
    from omg.modules.kernels.gru import gru_kernel  # which needs this module

    if config.torch_threads == 1 or config.policy_model not in ("rnn", "idv_rnn"):
        return False
    fits = config.rnn_hidden_dim % 16 == 0 and choose_device(config).type == "cpu"
    return fits and gru_kernel()[0] is not None


def choose_device(config: Config) -> torch.device:
    """The device a run uses; asking for one that is not there is an error, `auto` is not."""
    if config.device == "auto":
        return torch.device("cuda" if config.use_cuda and torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }[device.type]
    if present and device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        present = False
    if not present:
        raise OmgError(f"device={config.device} is not available here. Use device=auto or cpu.")
    return device


def tune_allocator() -> None:
    """Keep freed memory for the next update instead of returning it to the system each time:
    glibc maps every large tensor again otherwise, and the page faults cost more than the maths."""
    if platform.system() != "Linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)
