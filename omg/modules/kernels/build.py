"""Compiles the C kernels with the system's compiler on first use and keeps the result."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger("omg.kernels")

# No -ffast-math: rounding by a magic constant must stay as written.
FLAGS = (
    *("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno"),
    *("-fPIC", "-shared", "-std=gnu11"),
)


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "".join(line for line in lines[:40] if line.startswith(("model", "flags")))
    except OSError:
        return platform.processor()


def _cache() -> Path:
    root = os.environ.get("OMG_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "omg-marl"


def _torch_openmp() -> Path | None:
    """The OpenMP library torch itself uses, so that both share one pool of threads."""
    folders = [Path(torch.__file__).parent / "lib", Path(torch.__file__).parents[1] / "torch.libs"]
    for folder in folders:
        for path in sorted(folder.glob("libgomp*.so*")):
            return path
    return None


def _headers(source: Path) -> list[Path]:
    """What a source may include; a change there must compile it anew."""
    return sorted(source.parent.glob("*.h"))


def _compile(compiler: str, source: Path, target: Path, flags: tuple[str, ...]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    try:
        command = [compiler, *flags, str(source), "-o", name]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where a tensor's numbers lie; the tensor must live as long as it is used."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def pointers(tensors: Iterable[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """An array of them."""
    found = [tensor.data_ptr() for tensor in tensors]
    return (ctypes.c_void_p * len(found))(*found)


@functools.cache
def load_library(source_name: str) -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None and the reason why there is none."""
    if os.environ.get("OMG_KERNELS", "1") == "0":
        return None, "switched off by OMG_KERNELS=0"
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        return None, "no C compiler found"
    source = Path(__file__).with_name(source_name)
    openmp = _torch_openmp()
    flags = (*FLAGS, "-fopenmp") if openmp else FLAGS
    try:
        version = subprocess.run(
            [compiler, "--version"], check=True, capture_output=True, text=True, timeout=20
        ).stdout
        texts = [path.read_text(encoding="utf-8") for path in (source, *_headers(source))]
        parts = [*texts, version, _cpu(), " ".join(flags)]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
        target = _cache() / f"{source.stem}-{key}.so"
        if not target.exists():
            _compile(compiler, source, target, flags)
        if openmp:
            ctypes.CDLL(str(openmp), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(target)), f"compiled by {version.splitlines()[0]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return None, f"could not be built: {detail.strip().splitlines()[-1]}"
