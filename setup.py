"""The wheel carries our C code compiled for common processors; everything else is in
pyproject.toml. Without a compiler, or not on Linux with x86-64, it carries the sources alone."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))
from omg import compiled, prebuilt  # noqa: E402


def levels() -> list[str]:
    """For which processors: all levels, or those that OMG_PREBUILT names (0: none)."""
    named = os.environ.get("OMG_PREBUILT", ",".join(prebuilt.LEVELS)).split(",")
    return [level for level in prebuilt.LEVELS if level in named]


def compiler() -> str | None:
    """What the libraries are built with; None: they are left out."""
    if not levels():
        return None
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


class BuildWithKernels(build_py):
    """Also compiles; not for an editable installation, which compiles on first use."""

    def run(self) -> None:
        super().run()
        found = compiler()
        if found is None or self.editable_mode:
            return
        sources = [path.relative_to(ROOT) for path in sorted((ROOT / "omg").rglob("*.c"))]
        places = {path: Path(self.build_lib) / path.parent / prebuilt.FOLDER for path in sources}
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)
        for source, place in places.items():
            try:
                flags = compiled.flags_of(source)
                prebuilt.build(found, ROOT / source, flags, place, levels())
            except (OSError, subprocess.CalledProcessError) as error:
                raise SystemExit(
                    f"{found} cannot compile {source} for this wheel: {error}. Set OMG_PREBUILT=0 "
                    "for a wheel without libraries, which are then compiled on first use."
                ) from error


class PlatformWheel(bdist_wheel):
    """For any Python 3, but for one platform where it carries libraries."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class WithLibraries(Distribution):
    """Ours are no extension modules, but as bound to the platform."""

    def has_ext_modules(self) -> bool:
        return compiler() is not None


setup(
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel}, distclass=WithLibraries
)
