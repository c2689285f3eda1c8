"""What the configuration says about speed, for this process."""

from __future__ import annotations

import torch

from omg.config.schema import Config
from omg.modules.kernels.build import use_kernels


def set_up_torch(config: Config) -> None:
    """Threads (0: torch's own choice) and whether our kernels are used."""
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    use_kernels(config.use_kernels)
