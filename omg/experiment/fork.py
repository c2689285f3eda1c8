"""A new run that goes on from the state of another, with some settings changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, Update
from omg.config.loader import dump, load_saved
from omg.experiment.provenance import identity
from omg.storage.files import RUN, RunFolder, new_folder, read_json, save_tensors, write_text
from omg.storage.sums import write_sums
from omg.types import OmgError


def copy_state(source: Path, target: Path) -> int:
    """The newest state of a run that may be training, as a folder that can be forked later; its
    step. Files are linked where the disk can do that: a run never changes them."""
    run = RunFolder(source)
    for _ in range(20):
        steps = run.resume_steps()
        if not steps:
            raise OmgError(f"{source} has no resume state yet. Lower its resume_interval.")
        saved = run.resume / str(steps[-1])
        try:
            with new_folder(target) as part:
                shutil.copytree(saved, part / "resume" / saved.name, copy_function=_link)
                shutil.copy2(run.config, part)
                shutil.copy2(run.path / RUN, part)
                shutil.copy2(run.metrics, part)
            return steps[-1]
        except OmgError as error:  # replaced by a newer state at this moment
            if saved.exists():
                raise error
    raise OmgError(f"{source} replaces its states faster than they can be read. Try again.")


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def fork_run(source: Path, target: Path, changes: Mapping[str, Any]) -> RunFolder:
    """A folder in which `--resume` goes on from the state of `source` with other settings. What
    was logged until then is in it; run.json says where it comes from."""
    origin = RunFolder(source)
    state = origin.load_resume()
    updates = tuple(Update(key, value, f"{key}={value}") for key, value in changes.items())
    lies = (
        Update("run_name", target.name, "fork"),
        Update("local_results_path", str(target.parent), "fork"),
    )
    config = load_saved(origin.config, Arguments(updates=(*updates, *lies))).config
    step = origin.resume_steps()[-1]
    known = read_json(origin.path / RUN)
    parent = {"run": origin.id, "env_steps": step, "changes": dict(changes)}
    content = {
        "id": identity(config),
        "seed": config.seed,
        "sessions": known.get("sessions", []),
        "parents": [*known.get("parents", []), parent],
    }
    with new_folder(target) as part:
        write_text(part / "config.yaml", dump(config))
        write_text(part / RUN, json.dumps(content, indent=2) + "\n")
        shutil.copy2(origin.metrics, part)
        saved = part / "resume" / str(step)
        saved.mkdir(parents=True)
        save_tensors(saved / "state.pt", state)
        write_sums(saved, run=content["id"])
    return RunFolder(target)
