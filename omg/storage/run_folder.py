"""The folder of one run: config.yaml metrics.jsonl models/ resume/ tb/ replays/."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.config.loader import dump, read_yaml
from omg.config.schema import Config
from omg.storage.files import load_tensors, new_folder, save_tensors, write_text
from omg.types import OmgError


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run; knows how to find what was saved."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def replays(self) -> Path:
        return self.path / "replays"

    @property
    def resume(self) -> Path:
        return self.path / "resume"

    def resume_steps(self) -> list[int]:
        """Steps with a complete resume state, ascending."""
        if not self.resume.is_dir():
            return []
        return sorted(int(path.name) for path in self.resume.iterdir() if path.name.isdecimal())

    def save_resume(self, env_steps: int, state: Mapping[str, Any]) -> None:
        """Write a resume state; older ones go once it is complete."""
        older = self.resume_steps()
        with new_folder(self.resume / str(env_steps)) as part:
            save_tensors(part / "state.pt", dict(state))
        for step in older:
            if step != env_steps:
                shutil.rmtree(self.resume / str(step), ignore_errors=True)

    def load_resume(self) -> dict[str, Any]:
        steps = self.resume_steps()
        if not steps:
            raise OmgError(
                f"{self.path} has no resume state. It ended before resume_interval; start it anew."
            )
        path = self.resume / str(steps[-1]) / "state.pt"
        advice = f"The run cannot be continued; checkpoint_path={self.path} loads its weights."
        state = load_tensors(path, advice=advice)
        if not isinstance(state, dict):
            raise OmgError(f"{path} is not a resume state. {advice}")
        return state

    def discard_if_unused(self) -> None:
        """Remove the folder of a run that failed before it did anything, to free its name."""
        if [path.name for path in self.path.iterdir()] == [self.config.name]:
            shutil.rmtree(self.path, ignore_errors=True)


def _name(config: Config) -> str:
    if config.run_name:
        return config.run_name
    named = config.env_args.get("key") or config.env_args.get("map_name")
    key = str(named or config.env)
    parts = [config.name, key, config.label, f"s{config.seed}", time.strftime("%Y%m%d-%H%M%S")]
    return re.sub(r"[^\w.+-]+", "_", "-".join(part for part in parts if part))


def create_run_folder(config: Config) -> RunFolder:
    """A new folder under local_results_path, with the configuration in it."""
    root = Path(config.local_results_path).expanduser()
    name = _name(config)
    path = root / name
    try:
        root.mkdir(parents=True, exist_ok=True)
        for attempt in range(2, 1000):
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                if config.run_name:
                    raise OmgError(
                        f"A run called '{name}' exists in {root}. Continue it with --resume, or "
                        "choose another run_name."
                    ) from None
                path = root / f"{name}-{attempt}"
    except OSError as error:
        raise OmgError(
            f"local_results_path={root} cannot be written to: {error.strerror}. Choose a folder "
            "you own, e.g. --local_results_path=results."
        ) from error
    folder = RunFolder(path)
    write_text(folder.config, dump(config))
    return folder


def find_run_to_resume(config: Config) -> RunFolder:
    """The run called run_name, or the newest with this algorithm, environment and seed."""
    root = Path(config.local_results_path).expanduser()
    if config.run_name:
        folder = RunFolder(root / config.run_name)
        if not folder.config.is_file():
            raise OmgError(f"There is no run '{config.run_name}' in {root} to resume.")
        return folder
    wanted = config.as_dict()
    same = ("name", "env", "env_args", "seed", "label")
    found: list[RunFolder] = []
    for path in sorted(root.glob("*/config.yaml"), key=lambda p: p.stat().st_mtime):
        folder = RunFolder(path.parent)
        saved = read_yaml(path, str(path))
        if all(saved.get(key) == wanted[key] for key in same) and folder.resume_steps():
            found.append(folder)
    if not found:
        raise OmgError(
            f"No run of {config.name} on {config.env} with seed={config.seed} in {root} has a "
            "resume state. Start it without --resume, or give --resume=<run folder>."
        )
    return found[-1]
