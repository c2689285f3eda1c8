"""Weights & Biases: a run's metrics and settings, online or offline."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from omg.config.loader import without_secrets
from omg.config.schema import Config
from omg.experiment.sinks import Row, scalars
from omg.storage.files import RunFolder, read_json, write_text
from omg.types import OmgError

FILE = "wandb.json"  # which run of W&B a run's folder belongs to


class WandbTracker:
    """A run of W&B, called like the run's folder. A run that goes on continues it: W&B ignores
    what it knows already. One that had none before is told all that was logged."""

    def __init__(self, *, config: Config, folder: RunFolder, records: Sequence[Row]) -> None:
        known = _known(folder.path / FILE)
        self._run = self._start(config, folder, known)
        write_text(
            folder.path / FILE,
            json.dumps({"id": self._run.id, "project": self._run.project}, indent=2) + "\n",
        )
        sync = f"offline; send it with 'wandb sync {Path(self._run.dir).parent}'"
        self.note = sync if self._run.offline else str(self._run.url)
        if not known:
            for name, value, env_steps in scalars(records):
                self(name, value, env_steps)

    @staticmethod
    def _start(config: Config, folder: RunFolder, known: dict[str, str]) -> Any:
        try:
            return wandb.init(
                project=known.get("project") or config.wandb_project,
                entity=config.wandb_entity or None,
                mode=config.wandb_mode or None,
                id=known.get("id"),
                resume="allow",
                name=folder.path.name,
                group=f"{config.name}-{config.env}",
                dir=str(folder.path),
                config=without_secrets(config),
                settings=wandb.Settings(silent=True, console="off", disable_git=True),
            )
        except (wandb.Error, OSError) as error:
            said = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
            raise OmgError(
                f"Weights & Biases refuses this run: {said}. Log in with 'wandb login', or train "
                "with wandb_mode=offline."
            ) from error

    def __call__(self, name: str, value: float, env_steps: int) -> None:
        self._run.log({name: value}, step=env_steps)

    def close(self, *, failed: bool) -> None:
        with contextlib.suppress(Exception):  # the run's own files are complete without it
            self._run.finish(exit_code=int(failed))


def _known(path: Path) -> dict[str, str]:
    """Which run of W&B is continued; empty for none."""
    if not path.is_file():
        return {}
    found = {key: str(value) for key, value in read_json(path).items()}
    if not re.fullmatch(r"[\w-]+", found.get("id", "")):
        raise OmgError(f"{path} names no run of W&B. Delete it to begin another.")
    return found
