"""Packages: those that every run needs, torch, and those for single features."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import Any

from omg.cli.doctor.line import Line, import_faults, is_there, reason, version_of

# Module, distribution, how to do without: what a run imports. Torch has lines of its own.
NEEDED = (
    ("numpy", "numpy", ""),
    ("yaml", "PyYAML", ""),
    ("pydantic", "pydantic", ""),
    ("rich", "rich", ""),
    ("typer", "typer", ""),
    ("sacred", "sacred", ", or train with use_sacred=false"),
)


def needed_lines() -> list[Line]:
    """What every run imports."""
    faults = import_faults([row[0] for row in NEEDED])
    return [*(_package_line(*row, faults.get(row[0], "")) for row in NEEDED), _setuptools()]


def _package_line(module: str, distribution: str, otherwise: str, fault: str) -> Line:
    """A needed package."""
    install = f"pip install {distribution.lower()}{otherwise}"
    if not is_there(module):
        return Line("needed", module, "problem", "not installed", install, needed=True)
    if fault:
        told = f"installed, but cannot be imported: {fault}"
        again = f"pip install --force-reinstall {distribution.lower()}{otherwise}"
        return Line("needed", module, "problem", told, again, needed=True)
    return Line("needed", module, "ok", version_of(distribution) or "version unknown", needed=True)


def _setuptools() -> Line:
    """Sacred imports pkg_resources, which newer versions of setuptools no longer bring."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("pkg_resources")
    except Exception as error:
        return Line(
            *("needed", "setuptools", "problem"),
            f"{version_of('setuptools') or 'not installed'}: pkg_resources, which sacred imports, "
            f"cannot be imported ({reason(error)})",
            "pip install 'setuptools<81', or train with use_sacred=false",
            needed=True,
        )
    detail = f"{version_of('setuptools')}, pkg_resources can be imported (sacred needs it)"
    return Line("needed", "setuptools", "ok", detail, needed=True)


def torch_lines() -> list[Line]:
    """Torch, the devices it finds, and its threads."""
    install = "pip install torch; its own page lists builds for GPUs"
    if not is_there("torch"):
        return [Line("torch", "torch", "problem", "not installed", install, needed=True)]
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        told = f"installed, but cannot be imported: {reason(error)}"
        return [Line("torch", "torch", "problem", told, install, needed=True)]
    return [
        Line("torch", "torch", "ok", str(torch.__version__), needed=True),
        Line("torch", "devices", "ok", _devices(torch)),
        Line("torch", "threads", "ok", _threads(torch)),
    ]


def _devices(torch: Any) -> str:
    found = ["cpu"]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        found += [f"cuda:{number} ({name})" for number, name in enumerate(names)]
    if torch.backends.mps.is_available():
        found.append("mps")
    chosen = "cuda" if torch.cuda.is_available() else "cpu"
    return f"{', '.join(found)}; device=auto takes {chosen}"


def _threads(torch: Any) -> str:
    default = "1"
    with contextlib.suppress(Exception):
        from omg.config.loader import shipped_defaults

        default = str(shipped_defaults()["torch_threads"])
    return (
        f"torch would use {torch.get_num_threads()}; runs use torch_threads={default} unless told "
        "otherwise, so that results do not depend on the machine"
    )


EVENTS = "tensorboard.compat.proto.event_pb2"  # what an old protobuf breaks
# Module, distribution, what it is for, what to install.
OPTIONAL = (
    (
        "lbforaging",
        "lbforaging",
        "Foraging as its authors wrote it: env=gymnasium",
        "omg-marl[lbf]",
    ),
    ("mpe2", "mpe2", "the particle games (simple_spread …): env=pettingzoo", "omg-marl[mpe]"),
    ("pettingzoo", "pettingzoo", "other PettingZoo games: env=pettingzoo", "omg-marl[mpe]"),
    ("gymnasium", "gymnasium", "Gymnasium games: env=gymnasium", "omg-marl[lbf]"),
    ("rware", "rware", "the warehouse: env=gymnasium", "omg-marl[rware]"),
    ("matplotlib", "matplotlib", "learning curves: omg plot", "matplotlib"),
    ("PIL", "pillow", "replays as GIF", "pillow"),
    ("onnxruntime", "onnxruntime", "policies as ONNX: omg export", "omg-marl[export]"),
    ("wandb", "wandb", "Weights & Biases: use_wandb", "omg-marl[wandb]"),
    ("pymongo", "pymongo", "Sacred's records in a MongoDB: mongo_url", "omg-marl[mongo]"),
)


def feature_lines() -> list[Line]:
    """Packages that single features need."""
    faults = import_faults([EVENTS, *(row[0] for row in OPTIONAL)])
    features = (_feature(*row, faults.get(row[0], "")) for row in OPTIONAL)
    return [_tensorboard(faults.get(EVENTS, "")), *features]


def _feature(module: str, distribution: str, purpose: str, install: str, fault: str) -> Line:
    if not is_there(module):
        detail, advice = f"not installed; for {purpose}", f"pip install '{install}'"
        return Line("features", module, "missing", detail, advice)
    if fault:
        told = f"installed, but cannot be imported: {fault}; for {purpose}"
        return Line("features", module, "problem", told, f"pip install --upgrade '{install}'")
    return Line("features", module, "ok", f"{version_of(distribution)}; for {purpose}")


def _tensorboard(fault: str) -> Line:
    """Without it runs write metrics.jsonl alone, and say so."""
    name, purpose = "tensorboard", "curves while a run trains: <run>/tb"
    if not is_there(name):
        told = f"not installed; for {purpose}"
        return Line("features", name, "missing", told, "pip install tensorboard")
    if fault:
        told = (
            f"{version_of(name)} cannot be imported beside protobuf {version_of('protobuf')}: "
            f"{fault}; runs leave it out"
        )
        advice = "pip install 'tensorboard<2.20', which works with the protobuf that smac needs"
        return Line("features", name, "problem", told, advice)
    return Line("features", name, "ok", f"{version_of(name)}; for {purpose}")


def starcraft_lines() -> list[Line]:
    """StarCraft II, the packages that drive it, and its maps."""
    from omg.envs.sc2.install import describe_installation

    return [
        Line(
            *("StarCraft II", finding.what, "ok" if finding.found else "missing"),
            *(finding.detail, finding.advice),
        )
        for finding in describe_installation()
    ]
