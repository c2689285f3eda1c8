"""Kernels that the wheel carries: chosen by what the processor can do, used without a compiler."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from omg import compiled, prebuilt
from omg.cli.doctor.kernels import KERNELS

V2 = ["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3", "mmx"]
V3 = [*V2, *["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"]]
V4 = [*V3, *["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]]
NAMES = ["x86-64-v4", "x86-64-v3", "x86-64-v2"]

compiler = shutil.which("cc") or shutil.which("gcc")
here = prebuilt.levels_of_this_machine()
needs_both = pytest.mark.skipif(not (compiler and here), reason="no compiler, or no x86-64-v2")


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ([], []),
        (V2, NAMES[2:]),
        (V3, NAMES[1:]),
        ([flag for flag in V3 if flag != "fma"], NAMES[2:]),
        (V4, NAMES),
        ([*V2, *["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]], NAMES[2:]),
    ],
)
def test_a_processor_runs_the_levels_all_of_whose_parts_it_has(
    flags: list[str], levels: list[str]
) -> None:
    assert prebuilt.levels_of(flags) == levels


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small source; the machine has a compiler only while a test builds."""
    monkeypatch.setenv("OMG_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.c"
    path.write_text('#include "tiny.h"\nint number(void) { return NUMBER; }\n')
    (tmp_path / "tiny.h").write_text("#define NUMBER 7\n")
    return path


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("PATH", "/nonexistent")


@needs_both
def test_without_a_compiler_the_best_that_the_wheel_has_is_used(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler
    made = prebuilt.build(compiler, source, compiled.GAME_FLAGS, source.parent / prebuilt.FOLDER)
    assert [path.name.partition("-")[2].rpartition("-")[0] for path in made] == NAMES[::-1]
    without_compiler(monkeypatch)
    library, reason = compiled.load_library(source, compiled.GAME_FLAGS)
    assert library is not None
    assert library.number() == 7
    assert reason == f"built for {here[0]} in the wheel (no C compiler found)"
    monkeypatch.setattr(prebuilt, "levels_of_this_machine", lambda: ["x86-64-v2"])
    assert "x86-64-v2" in compiled.load_library(source, compiled.GAME_FLAGS)[1]
    monkeypatch.setattr(prebuilt, "levels_of_this_machine", list)
    assert compiled.load_library(source, compiled.GAME_FLAGS) == (None, "no C compiler found")


@needs_both
def test_a_compiler_goes_before_the_wheel_and_a_changed_source_is_not_served_old(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler
    folder = source.parent / prebuilt.FOLDER
    prebuilt.build(compiler, source, compiled.GAME_FLAGS, folder, here[:1])
    assert "compiled by" in compiled.load_library(source, compiled.GAME_FLAGS)[1]
    (source.parent / "tiny.h").write_text("#define NUMBER 8\n")
    without_compiler(monkeypatch)
    assert compiled.load_library(source, compiled.GAME_FLAGS) == (None, "no C compiler found")


@needs_both
def test_a_library_that_cannot_be_loaded_is_not_used_and_said(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler
    folder = source.parent / prebuilt.FOLDER
    (made,) = prebuilt.build(compiler, source, compiled.GAME_FLAGS, folder, here[:1])
    made.write_bytes(b"no library")
    without_compiler(monkeypatch)
    library, reason = compiled.load_library(source, compiled.GAME_FLAGS)
    assert library is None
    assert "that of the wheel cannot be loaded" in reason


@pytest.mark.long
@pytest.mark.skipif(not compiler, reason="no C compiler here")
@pytest.mark.parametrize("kernel", [row[1:3] for row in KERNELS], ids=[row[0] for row in KERNELS])
def test_with_a_compiler_every_kernel_is_built_and_passes_its_self_test(
    kernel: tuple[str, str],
) -> None:
    """Their other tests are skipped without them, and runs go on without them, slower."""
    module, function = kernel
    found, reason = getattr(importlib.import_module(module), function)()
    assert found is not None, reason
