"""Whether TensorBoard can be written: an old protobuf, which `smac` asks for, breaks new versions
of it, and a run does not depend on it."""

from __future__ import annotations

import functools
import logging
from importlib.metadata import PackageNotFoundError, version

log = logging.getLogger("omg.output")


def usable() -> bool:
    """False, and a remark, where TensorBoard is missing or broken."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: F401
    except Exception as error:  # an old protobuf beside it raises whatever comes
        lines = str(error).strip().splitlines() or ["no reason given"]
        _remark(f"{type(error).__name__}: {lines[0].rstrip('.')}")
        return False
    return True


@functools.cache
def _remark(why: str) -> None:
    """Said once in a process."""
    log.warning(
        "TensorBoard cannot be imported (%s), so nothing is written for it; metrics.jsonl has "
        "everything. %s, or leave it out with use_tensorboard=false.",
        why,
        _remedy(),
    )


def _remedy() -> str:
    try:
        major = int(version("protobuf").partition(".")[0])
    except (PackageNotFoundError, ValueError):
        major = 0
    old = 0 < major < 5
    return f"Install it: pip install {repr('tensorboard<2.20') if old else 'tensorboard'}"
