"""Every kernel is there where it can be: tests of a kernel that cannot be built are skipped, so
nothing else would tell."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

import pytest

from omg import compiled
from omg.cli.doctor.kernels import KERNELS

pytestmark = pytest.mark.skipif(
    not (shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc"))
    or os.environ.get("OMG_KERNELS") == "0",
    reason="no C compiler on this machine, or kernels are switched off",
)


@pytest.mark.parametrize(("module", "function"), [kernel[1:3] for kernel in KERNELS])
def test_every_kernel_is_built_where_there_is_a_compiler(module: str, function: str) -> None:
    kernel, reason = getattr(importlib.import_module(module), function)()
    assert kernel is not None, reason


def test_source_that_does_not_compile_is_answered_with_the_compilers_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMG_CACHE", str(tmp_path))
    source = tmp_path / "wrong.c"
    source.write_text("int two(int a, int b);\nint one(void) { return two(1); }\n")
    library, reason = compiled.load_library(source, compiled.NETWORK_FLAGS)
    assert library is None
    assert "too few arguments" in reason
