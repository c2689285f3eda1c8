"""The compiler, and whether the C kernels were built and compute what torch does."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator

from omg.cli.doctor.line import Line

NETWORKS = "omg.modules.kernels"
# name, module and function of each, what does its work without it, and what it equals
KERNELS = (
    ("GRU kernel", f"{NETWORKS}.gru", "gru_kernel", "nn.GRU is", "torch"),
    ("step kernel", f"{NETWORKS}.stacked", "stacked_kernel", "torch's layers are", "torch"),
    ("acting kernel", f"{NETWORKS}.acting", "acting_kernel", "torch's operations are", "torch"),
    ("PPO kernel", f"{NETWORKS}.ppo", "ppo_kernel", "torch's operations are", "torch"),
    ("branch kernel", f"{NETWORKS}.branches", "branch_kernel", "torch's layers are", "torch"),
    ("noise kernel", f"{NETWORKS}.noise", "noise_kernel", "NumPy is", "NumPy"),
    ("subgoal kernel", f"{NETWORKS}.subgoal", "subgoal_kernel", "torch's layers are", "torch"),
    ("mixer kernel", f"{NETWORKS}.qmix", "qmix_kernel", "torch's layers are", "torch"),
    (
        *("optimiser kernel", f"{NETWORKS}.optimiser", "optimiser_kernel"),
        *("torch's optimisers are", "torch"),
    ),
    ("battle kernel", "omg.envs.battle.kernel", "battle_kernel", "NumPy is", "NumPy"),
    ("foraging kernel", "omg.envs.foraging.kernel", "foraging_kernel", "NumPy is", "NumPy"),
    ("particle kernel", "omg.envs.particles.kernel", "particle_kernel", "NumPy is", "NumPy"),
)


def kernel_lines() -> list[Line]:
    """The compiler and the kernels; without them torch or NumPy does the same, slower."""
    try:
        importlib.import_module("torch")
    except Exception:  # whatever breaks torch, the doctor goes on and says so
        detail = "not examined, because torch cannot be imported"
        return [_compiler(), Line("speed", "kernels", "missing", detail, "see torch above")]
    with _silent("omg.kernels"):
        kernels = [_kernel_line(*kernel) for kernel in KERNELS]
    return [_compiler(prebuilt=all("in the wheel" in line.detail for line in kernels)), *kernels]


def _compiler(*, prebuilt: bool = False) -> Line:
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None and prebuilt:
        return Line("speed", "C compiler", "ok", "none is there or needed: see the kernels")
    if found is None:
        return Line(
            *("speed", "C compiler", "missing", "neither cc nor gcc was found; training is slower"),
            "install one (e.g. the package gcc), or name it in the variable CC",
        )
    try:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10)
        name = told.stdout.splitlines()[0]
    except (OSError, IndexError, subprocess.SubprocessError):
        name = "does not tell its version"
    return Line("speed", "C compiler", "ok", f"{found}: {name}")


def _kernel_line(name: str, module: str, function: str, instead: str, equals: str) -> Line:
    kernel, reason = getattr(importlib.import_module(module), function)()
    if kernel is not None:
        return Line("speed", name, "ok", f"{reason}; equals {equals} (self-test)")
    return _unused(name, f"{instead} used instead, because {_because(reason)}")


def _because(reason: str) -> str:
    return f"it {reason}" if reason.startswith("could not") else reason


def _unused(name: str, detail: str) -> Line:
    if "switched off" in detail:
        return Line("speed", name, "missing", detail, "unset OMG_KERNELS")
    if "no C compiler" in detail:
        return Line("speed", name, "missing", detail, "install a C compiler")
    return Line("speed", name, "problem", f"{detail}; results are the same, slower", "update gcc")


@contextlib.contextmanager
def _silent(logger: str) -> Iterator[None]:
    """The lines say it; a warning beside them would say it twice."""
    log = logging.getLogger(logger)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
