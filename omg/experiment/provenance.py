"""What a run was made with: written into run.json, shown by the report."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from omg.config.schema import Config, marked
from omg.envs.registry import environment_versions
from omg.modules.device import load_library
from omg.storage.files import RUN, RunFolder, read_json, write_text

PACKAGES = ("torch", "numpy", "lbforaging", "mpe2", "pettingzoo", "gymnasium", "rware", "smac")


def version_of(distribution: str) -> str:
    """Of an installed distribution; empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def requirements() -> list[str]:
    """The distributions that omg needs, without extras."""
    try:
        lines = requires("omg-marl") or []
    except PackageNotFoundError:
        return []
    return [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]


def our_sources() -> list[Path]:
    """Every file of omg that may change a result: Python, the kernels, the configurations."""
    files = Path(__file__).parents[1].rglob("*")
    return sorted(path for path in files if path.suffix in (".py", ".c", ".h", ".yaml"))


@cache
def source_commit() -> str:
    """The commit of omg's own sources, with `+changes` where they differ from it; empty where
    they are not under git."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "--no-optional-locks", "-C", str(here), *words],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def processor() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def provenance(config: Config) -> dict[str, Any]:
    """Versions and machine of this process."""
    packages = {name: found for name in PACKAGES if (found := version_of(name))}
    return {
        "omg": version_of("omg-marl") or "unknown",
        "commit": source_commit(),
        "python": platform.python_version(),
        "packages": {**packages, **environment_versions(config.env, config.env_args)},
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "kernels": config.use_kernels and load_library("gru.c")[0] is not None,
    }


def identity(config: Config) -> str:
    """What tells a run from all others: its settings that a continuation may not change. Two runs
    that have all of them in common, seed included, are the same to the last bit."""
    values = config.as_dict()
    fixed = marked(result=True, resume=False, place=False)
    text = json.dumps({key: values[key] for key in sorted(fixed)}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def record_session(folder: RunFolder, config: Config) -> None:
    """Note that the run begins or goes on, here and now."""
    path = folder.path / RUN
    known = read_json(path) if path.is_file() else {}
    sessions = known.get("sessions")
    session = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **provenance(config)}
    content = {
        **known,
        "id": known.get("id") or identity(config),
        "seed": config.seed,
        "sessions": [*(sessions if isinstance(sessions, list) else []), session],
    }
    write_text(path, json.dumps(content, indent=2) + "\n")
