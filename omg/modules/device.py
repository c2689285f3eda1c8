"""What the machine offers: device, threads, memory; and our C kernels, compiled with the system's
compiler on first use and kept."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import logging
import math
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from omg.config.schema import Config
from omg.types import OmgError

log = logging.getLogger("omg.kernels")
K = TypeVar("K")
Found: TypeAlias = "tuple[K | None, str]"  # a kernel or None, and where it is from or why not

_switch = {"on": True}
_said: set[str] = set()

TOLERANCE = 1e-4  # of a self-test
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
    source = Path(__file__).with_name("kernels") / source_name
    openmp = _torch_openmp()
    flags = (*FLAGS, "-fopenmp") if openmp else FLAGS
    try:
        version = subprocess.run(
            [compiler, "--version"], check=True, capture_output=True, text=True, timeout=20
        ).stdout
        texts = [path.read_text(encoding="utf-8") for path in (source, *_headers(source))]
        parts = [*texts, version, _cpu(), " ".join(flags)]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
        target = _folder() / f"{source.stem}-{key}.so"
        if not _intact(target):
            _compile(compiler, source, target, flags)
        if openmp:
            ctypes.CDLL(str(openmp), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(target)), f"compiled by {version.splitlines()[0]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        last = (detail.strip().splitlines() or [type(error).__name__])[-1]
        return None, f"could not be built: {last}"


def use_kernels(on: bool) -> None:
    """The configuration's switch `use_kernels`, for this process."""
    _switch["on"] = on


def load_kernel(
    source: str, make: Callable[[ctypes.CDLL], K], self_test: Callable[[K], float]
) -> Found[K]:
    """A kernel after its self-test (its largest difference to torch), or None and the reason. A
    reason is logged once, however many kernels it keeps from being used."""
    library, reason = load_library(source)
    if library is not None:
        try:
            kernel = make(library)
            with torch.inference_mode(False):
                error = self_test(kernel)
        except Exception as fault:  # whatever it is, torch can do the work
            error, reason = math.inf, f"the self-test of {source} failed: {fault}"
        else:
            if error <= TOLERANCE:
                return kernel, reason
            reason = f"the self-test of {source} was off by {error:.2g}"
    say_once(reason)
    return None, reason


def say_once(reason: str) -> None:
    """Why a kernel is not used, in the log, however often it is not."""
    if reason not in _said:
        _said.add(reason)
        log.warning("Fast kernels are not used (%s); torch does the same, slower.", reason)


def largest_difference(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Of a self-test; not a number where one of the tensors holds such a thing."""
    return float(torch.stack([(a - b).detach().abs().max() for a, b in pairs]).max())


def plain(*tensors: Tensor) -> bool:
    """Whether the kernels can read these: floats of 32 bits on the CPU, without gaps."""
    return all(
        t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors
    )


def agreed(*facts: bool) -> None:
    """Shapes are checked before a pointer is handed on."""
    if not all(facts):
        raise ValueError("the shapes of inputs and weights do not fit together")


def switched(load: Callable[[], Found[K]]) -> Callable[[], Found[K]]:
    """Loads once per process, and gives nothing while `use_kernels` is off."""
    loaded = functools.cache(load)

    @functools.wraps(load)
    def kernel() -> Found[K]:
        return loaded() if _switch["on"] else (None, "switched off by use_kernels=False")

    return kernel


def set_up_torch(config: Config) -> None:
    """Threads (0: torch's own choice) and whether our kernels are used."""
    cores = os.cpu_count() or 1
    if config.torch_threads > max(64, 4 * cores):  # the system may refuse to start them
        raise OmgError(
            f"torch_threads={config.torch_threads}, and this machine has {cores} cores. Use at "
            "most that many."
        )
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
