"""One run from its arguments to its result: shared by the command line and by Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, SacredWords, Update
from omg.config.loader import (
    DEFAULT_ORIGIN,
    LoadedConfig,
    available,
    load,
    load_saved,
    read_yaml,
)
from omg.config.schema import Config, marked
from omg.experiment.checks import check_sacred
from omg.experiment.run import Run, RunResult
from omg.experiment.sacred import go_recorded
from omg.experiment.saved import SavedRun
from omg.experiment.training import RunInterrupted
from omg.registry import import_path_of
from omg.storage.files import (
    RunFolder,
    create_run_folder,
    find_run_to_resume,
    remove_leftovers,
    writing,
)
from omg.storage.locks import release_lock, take_lock
from omg.types import OmgError, RunFailedError, user_path

# What may differ between a run and its continuation; everything else would change its result.
RESUME_MAY_CHANGE = marked(resume=True)


def train(config: str | None = None, env_config: str | None = None, **settings: Any) -> SavedRun:
    """Train, as `omg train --config=… --env-config=… --key=value …` does; the run.

    `settings` are keys of the configuration, e.g. `t_max=50_000, env_args={"key": "…"}`; a class
    stands for its import path (`env=MyEnv`). What the command line refuses is an `OmgError`."""
    updates = tuple(
        Update(key, _as_written(value), f"{key}={value!r}") for key, value in settings.items()
    )
    result = execute(*prepare(Arguments(alg=config, env=env_config, updates=updates)))
    return SavedRun(result.folder)


def _as_written(value: Any) -> Any:
    """A setting as it would stand on a command line."""
    return os.fspath(value) if isinstance(value, os.PathLike) else import_path_of(value)


def prepare(arguments: Arguments) -> tuple[Config, RunFolder | None]:
    """The configuration that arguments ask for, and the run to continue, if any."""
    loaded = load(arguments)
    wanted = loaded.config
    if not wanted.resume:
        check_environment(loaded)
        return wanted, None
    if isinstance(wanted.resume, str):
        folder = RunFolder(user_path(wanted.resume))
        if not folder.config.is_file():
            raise OmgError(
                f"resume={wanted.resume} is not the folder of a run (no config.yaml in it)."
            )
        if not (arguments.alg or arguments.env):
            wanted = load_saved(folder.config, arguments).config
    else:
        folder = find_run_to_resume(wanted)
    saved = load_saved(folder.config, Arguments()).config.as_dict()
    asked = wanted.as_dict()
    for key, value in asked.items():
        if key not in RESUME_MAY_CHANGE and value != saved[key]:
            raise OmgError(
                f"{folder.path} was started with {key}={saved[key]}, not {value}. A continuation "
                f"cannot change that: --resume={folder.path} alone has all its settings. Leave "
                f"{key}, --config and --env-config out, or start a new run."
            )
    named = {u.path for u in arguments.updates}
    named.update(key for name in arguments.files for key in read_yaml(Path(name), name))
    keep = [Update(key, asked[key], "--resume") for key in sorted(named & RESUME_MAY_CHANGE)]
    # The resume state holds newer weights than the checkpoint the run began with.
    keep.append(Update("checkpoint_path", "", "--resume"))
    return load_saved(folder.config, Arguments(updates=tuple(keep))).config, folder


def check_environment(loaded: LoadedConfig) -> None:
    """Somebody must have said which game is played."""
    named = [key for key in loaded.origins if key == "env" or key.startswith("env_args")]
    if all(loaded.origins[key] == DEFAULT_ORIGIN for key in named):
        raise OmgError(
            "No environment is named. Add --env-config=<name> with one of: "
            f"{', '.join(available('envs'))}; or --env=package.module:Class for one of your own."
        )


def execute(
    config: Config,
    resumed: RunFolder | None = None,
    *,
    words: SacredWords = SacredWords(),  # noqa: B008 (frozen)
    given: Mapping[str, Any] | None = None,
) -> RunResult:
    """Carry out a run in a new folder, or continue the one that is given. `words` are for Sacred,
    which also records what the command line set (`given`)."""
    check_sacred(words, config)
    folder = resumed or create_run_folder(config)
    lock = folder.path / ".lock"
    with writing(lock):
        held = take_lock(
            lock, lambda who: f"{folder.path} is being trained by {who}. Wait for it, or end it."
        )
    try:
        remove_leftovers(folder.path)
        # Everything that can be refused is refused before Sacred records a run.
        with Run(config, folder) as run:
            if resumed:
                run.continue_from(folder.load_resume())
            if not config.use_sacred:
                return run.go()
            return go_recorded(run, words=words, given=given or {})
    except SystemExit as stop:
        raise RunFailedError(
            f"The environment ended the program (SystemExit {stop.code}) instead of the episode. "
            "Correct it; --resume continues from the last resume state."
        ) from stop
    except RunInterrupted as stop:
        if folder.resume_steps():
            raise RunInterrupted(
                f"Continue with --resume={folder.path} or the same command and --resume."
            ) from stop
        raise
    finally:
        release_lock(lock, held)
        if resumed is None:
            folder.discard_if_unused()
