"""What the configuration says about the machine: device, threads, kernels, memory."""

from __future__ import annotations

import contextlib
import ctypes
import platform

import torch

from omg.config.schema import Config
from omg.modules.kernels.build import use_kernels
from omg.types import OmgError


def set_up_torch(config: Config) -> None:
    """Threads (0: torch's own choice) and whether our kernels are used."""
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    use_kernels(config.use_kernels)


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
