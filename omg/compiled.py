"""C code of ours, compiled with the system's compiler on first use and kept, or else taken from the
wheel: for the networks' kernels and for games, so it knows neither torch nor arrays."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from omg import prebuilt

try:
    import fcntl
except ImportError:  # not Unix: processes may compile the same twice
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("omg.kernels")
K = TypeVar("K")
Found: TypeAlias = "tuple[K | None, str]"  # a kernel or None, and where it is from or why not

_switch = {"on": True}
_said: set[str] = set()

NATIVE = "-march=native"
SHARED = ("-fPIC", "-shared", "-std=gnu11")
# No -ffast-math: rounding by a magic constant must stay as written.
NETWORK_FLAGS = ("-O3", NATIVE, "-ffp-contract=fast", "-fno-math-errno", *SHARED)
# Neither fused operations nor fast-math: NumPy must find the same in every bit.
GAME_FLAGS = (
    *("-O3", NATIVE, "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *SHARED,
)


def flags_of(source: Path) -> tuple[str, ...]:
    """How a source is compiled: games exactly, kernels of networks fast."""
    return GAME_FLAGS if "envs" in source.parts else NETWORK_FLAGS


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


def _private(path: Path) -> bool:
    """Whether only this user can have written a file or folder."""
    found = path.lstat()
    own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return own and not found.st_mode & 0o022 and not path.is_symlink()


def _folder() -> Path:
    """Where libraries are kept: a folder of this user's alone, or else one for this process."""
    folder = _cache()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
            folder.chmod(0o700)
        if _private(folder):
            return folder
    return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    made = tempfile.mkdtemp(prefix="omg-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _intact(target: Path) -> bool:
    """Whether a kept library is this user's own and as it was compiled: a library that is cut off
    would end the process without a word."""
    noted = target.with_suffix(".sha256")
    try:
        if not (_private(target) and _private(noted)):
            return False
        return _sum(target) == noted.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return False


def _compile(compiler: str, source: Path, target: Path, flags: tuple[str, ...]) -> None:
    """One process at a time compiles; the others wait and take what it made."""
    with (target.parent / f"{target.stem}.lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _intact(target):
            return
        handle, name = tempfile.mkstemp(dir=target.parent, suffix=".so")
        os.close(handle)
        try:
            command = [compiler, *flags, str(source), "-o", name]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            Path(name).chmod(0o700)
            noted = Path(f"{name}.sum")
            noted.touch(mode=0o600)
            noted.write_text(_sum(Path(name)), encoding="utf-8")
            os.replace(noted, target.with_suffix(".sha256"))
            os.replace(name, target)
        finally:
            Path(name).unlink(missing_ok=True)


def load_library(source: Path, flags: tuple[str, ...]) -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None and the reason why there is none."""
    if os.environ.get("OMG_KERNELS", "1") == "0":
        return None, "switched off by OMG_KERNELS=0"
    library, reason = _built_here(source, flags)
    if library is None and (built := prebuilt.best(source, flags)) is not None:
        try:
            return ctypes.CDLL(str(built.path)), f"built for {built.level} in the wheel ({reason})"
        except OSError as error:
            return None, f"{reason}, and that of the wheel cannot be loaded: {error}"
    return library, reason


def _built_here(source: Path, flags: tuple[str, ...]) -> tuple[ctypes.CDLL | None, str]:
    """For this very processor, or the one that OMG_ARCH names, by this machine's compiler."""
    wanted = f"-march={os.environ.get('OMG_ARCH') or 'native'}"
    flags = tuple(wanted if flag == NATIVE else flag for flag in flags)
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        return None, "no C compiler found"
    try:
        version = subprocess.run(
            [compiler, "--version"], check=True, capture_output=True, text=True, timeout=20
        ).stdout
        key = prebuilt.key_of(source, (version, _cpu(), " ".join(flags)))
        target = _folder() / f"{source.stem}-{key}.so"
        if not _intact(target):
            _compile(compiler, source, target, flags)
        return ctypes.CDLL(str(target)), f"compiled by {version.splitlines()[0]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return None, f"could not be built: {_told(error)}"


def _told(error: Exception) -> str:
    """The compiler's first error, or else the last line there is."""
    detail = getattr(error, "stderr", "") or str(error)
    lines = detail.strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[-1])


def use_kernels(on: bool) -> None:
    """The configuration's switch `use_kernels`, for this process."""
    _switch["on"] = on


def checked(
    library: ctypes.CDLL | None,
    reason: str,
    *,
    make: Callable[[ctypes.CDLL], K],
    self_test: Callable[[K], float],
    tolerance: float,
    name: str,
    instead: str = "torch",
) -> Found[K]:
    """A kernel after its self-test (its largest difference to what does the same without it), or
    None and the reason. A reason is logged once, however many kernels it keeps from being used."""
    if library is not None:
        try:
            kernel = make(library)
            error = self_test(kernel)
        except Exception as fault:  # whatever it is, the work can be done without
            reason = f"the self-test of {name} failed: {fault}"
        else:
            if error <= tolerance:
                return kernel, reason
            reason = f"the self-test of {name} was off by {error:.2g}"
    say_once(reason, instead)
    return None, reason


def say_once(reason: str, instead: str = "torch") -> None:
    """Why a kernel is not used, in the log, however often it is not."""
    if reason not in _said:
        _said.add(reason)
        log.warning("Fast kernels are not used (%s); %s does the same, slower.", reason, instead)


def switched(load: Callable[[], Found[K]]) -> Callable[[], Found[K]]:
    """Loads once per process, and gives nothing while `use_kernels` is off."""
    loaded = functools.cache(load)

    @functools.wraps(load)
    def kernel() -> Found[K]:
        return loaded() if _switch["on"] else (None, "switched off by use_kernels=False")

    return kernel
