"""The compiler, and whether the C kernels were built and compute what torch does."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator

from omg.doctor.line import Line


def kernel_lines() -> list[Line]:
    """The compiler and both kernels; without them torch does the same, slower."""
    try:
        importlib.import_module("torch")
    except Exception:  # whatever breaks torch, the doctor goes on and says so
        detail = "not examined, because torch cannot be imported"
        return [_compiler(), Line("speed", "kernels", "missing", detail, "see torch above")]
    with _silent("omg.kernels"):
        return [_compiler(), _gru_line(), _stacked_line()]


def _compiler() -> Line:
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
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


def _gru_line() -> Line:
    from omg.modules.kernels.gru import gru_kernel

    kernel, reason = gru_kernel()
    if kernel is not None:
        return Line("speed", "GRU kernel", "ok", f"{reason}; equals torch's GRU (self-test)")
    return _unused("GRU kernel", f"nn.GRU is used instead, because {_because(reason)}")


def _stacked_line() -> Line:
    from omg.modules.kernels.build import load_library
    from omg.modules.kernels.stacked import stacked_kernel

    kernel, (library, reason) = stacked_kernel(), load_library("stacked.c")
    if kernel is not None:
        return Line("speed", "step kernel", "ok", f"{reason}; equals torch's layers (self-test)")
    reason = reason if library is None else "its self-test failed"
    return _unused("step kernel", f"torch's layers are used instead, because {_because(reason)}")


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
