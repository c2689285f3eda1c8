"""Whether the machines of a cluster can work together: one folder, one version of omg."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.integrations.ray.cluster import Connection, Node
from omg.storage.files import writing
from omg.types import OmgError, RunFailedError

PATIENCE = 120.0  # seconds until every machine must have answered


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a machine says: the token it reads in the folder, and the versions it has."""

    token: str
    versions: Mapping[str, str]


def check_nodes(connection: Connection, folder: Path | None = None) -> None:
    """Refuse a cluster with a machine that does not see `folder`, or that has another omg or
    torch than this one. Where Ray lives on this machine only, there is nothing to ask."""
    if connection.local:
        return
    folder = None if folder is None else folder.resolve()
    nodes = [node for node in connection.nodes() if node.cpus]
    token, path = secrets.token_hex(16), None
    if folder is not None:
        path = folder / f".seen-by-all-{token[:8]}"
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(token, encoding="utf-8")
    try:
        answers = _ask(connection, nodes, path)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    here = our_versions()
    _check_versions(here, answers)
    blind = [node.name for node, answer in answers if path is not None and answer.token != token]
    if blind:
        raise OmgError(
            f"{folder} is not the same folder on {_listed(blind)}. Choose one that every machine "
            "of the cluster sees under this path, e.g. on a network disk."
        )


def our_versions() -> dict[str, str]:
    """Of what decides the bits of a result; omg's own sources and presets by their sum."""
    versions: dict[str, str] = _probe_function()("", os.getcwd())[1]
    return versions


def _check_versions(here: Mapping[str, str], answers: Sequence[tuple[Node, _Answer]]) -> None:
    """Node by node: several may have one name, e.g. on one machine."""
    for package, wanted in here.items():
        other = [
            f"{node.name} has {answer.versions.get(package) or 'none'}"
            for node, answer in answers
            if answer.versions.get(package) != wanted
        ]
        if other:
            raise OmgError(
                f"The machines have different versions of {package}: {wanted} here, "
                f"{_listed(other)}. Install the same on all of them."
            )


def _ask(
    connection: Connection, nodes: Sequence[Node], path: Path | None
) -> list[tuple[Node, _Answer]]:
    """One task on every machine, all at the same time."""
    ray = connection.ray
    probe = ray.remote(num_cpus=0, max_retries=2)(_probe_function())
    shown = "" if path is None else os.fspath(path)
    asked = {
        probe.options(scheduling_strategy=connection.on(node)).remote(shown, os.getcwd()): node
        for node in nodes
    }
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
    if silent:
        names = _listed([asked[task].name for task in silent])
        raise RunFailedError(
            f"No answer from {names} in {PATIENCE:g} s. Check that Ray runs there and that its "
            "worker processes can start."
        )
    answers = []
    for task in answered:
        try:
            answers.append((asked[task], _Answer(*ray.get(task))))
        except Exception as error:
            said = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise RunFailedError(
                f"{asked[task].name} cannot run a task: {said[0]}. Check Python and its packages "
                "there."
            ) from error
    return answers


# Prints the versions that a program started by this machine's Python finds.
_VERSIONS = """
import hashlib, importlib.metadata, importlib.util, json, pathlib
def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
versions, found = {"omg": "", "torch": installed("torch")}, importlib.util.find_spec("omg")
if found is not None and found.origin:
    sources = hashlib.sha256()
    for file in sorted(pathlib.Path(found.origin).parent.rglob("*")):
        if file.suffix in (".py", ".c", ".h", ".yaml"):
            sources.update(file.read_bytes())
    versions["omg"] = f"{installed('omg-marl') or 'unknown'} (sources {sources.hexdigest()[:8]})"
print(json.dumps(versions))
"""


def _probe_function() -> Any:
    """The task; made in here, so that it is sent as a whole and needs no omg to be read. It asks
    a new process, as the runs of a sweep are: Ray's workers have the paths of this one as well."""
    code = _VERSIONS

    def probe(path: str, folder: str) -> tuple[str, dict[str, str]]:
        import json
        import os
        import pathlib
        import subprocess
        import sys

        try:
            token = pathlib.Path(path).read_text(encoding="utf-8") if path else ""
        except OSError:
            token = ""
        here = folder if os.path.isdir(folder) else None
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=here)
        return token, json.loads(said.stdout or "{}")

    return probe


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
