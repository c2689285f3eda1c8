"""The entry point: command line → configuration → Sacred experiment → run."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, Update, parse_arguments
from omg.config.loader import available, load, load_saved, masked, read_yaml, without_secrets
from omg.config.schema import Config
from omg.run import Run, RunResult
from omg.storage.run_folder import RunFolder, create_run_folder, find_run_to_resume
from omg.training import RunInterrupted
from omg.types import OmgError

# What may differ between a run and its continuation; everything else would change its result.
RESUME_MAY_CHANGE = frozenset(
    [
        *("resume", "run_name", "local_results_path", "t_max", "keep_models"),
        *("quiet", "debug", "log_interval", "use_tensorboard", "use_sacred"),
        *("mongo_url", "db_name", "save_replay", "replay_episodes"),
        *("n_workers", "worker_timeout", "on_worker_failure", "max_worker_restarts"),
    ]
)


def plan(words: Sequence[str]) -> tuple[Config, RunFolder | None]:
    """The configuration of a command line, and the run to continue, if any."""
    arguments = parse_arguments(words)
    wanted = load(arguments).config
    if not wanted.resume:
        return wanted, None
    if isinstance(wanted.resume, str):
        folder = RunFolder(Path(wanted.resume).expanduser())
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
                "cannot change that; start a new run, or leave it out."
            )
    named = {u.path for u in arguments.updates}
    named.update(key for name in arguments.files for key in read_yaml(Path(name), name))
    keep = [Update(key, asked[key], "--resume") for key in sorted(named & RESUME_MAY_CHANGE)]
    # The resume state holds newer weights than the checkpoint the run began with.
    keep.append(Update("checkpoint_path", "", "--resume"))
    return load_saved(folder.config, Arguments(updates=tuple(keep))).config, folder


def _sacred_root(config: Config) -> Path:
    return Path(config.local_results_path).expanduser() / "sacred"


def _with_sacred(run: Run, state: Mapping[str, Any] | None) -> RunResult:
    config = run.config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacred import SETTINGS, Experiment
        from sacred.observers import FileStorageObserver
    SETTINGS["CAPTURE_MODE"] = "no"
    SETTINGS["CONFIG"]["READ_ONLY_CONFIG"] = False
    experiment = Experiment("omg", save_git_info=False)
    experiment.logger = logging.getLogger("omg.sacred")
    experiment.logger.setLevel(logging.CRITICAL)  # failures are reported once, by us
    experiment.observers.append(FileStorageObserver(_sacred_root(config)))
    mongo_url = config.mongo_url or os.environ.get("OMG_MONGO_URL", "")
    if mongo_url:
        experiment.observers.append(_mongo(mongo_url, config.db_name))
    experiment.add_config(without_secrets(config))
    outcome: list[RunResult] = []

    def my_main(_run: Any) -> float | None:
        notes = {"sacred": f"id {_run._id}, {_sacred_root(config) / str(_run._id)}"}
        if mongo_url:
            notes["mongo"] = f"{masked(mongo_url)}, database {config.db_name}"
        _run.info["run_folder"] = str(run.folder.path)
        outcome.append(run.go(state, sinks=(_run.log_scalar,), notes=notes))
        return outcome[0].metrics.get("test_return_mean")

    experiment.main(my_main)
    experiment.run()
    return outcome[0]


def _mongo(url: str, db_name: str) -> Any:
    try:
        import pymongo
    except ModuleNotFoundError as error:
        raise OmgError(
            "mongo_url needs the package 'pymongo'. Install it: pip install 'omg-marl[mongo]'"
        ) from error
    from sacred.observers import MongoObserver

    try:
        client: Any = pymongo.MongoClient(url, serverSelectionTimeoutMS=5000)
        client.admin.command("ping")
    except (pymongo.errors.PyMongoError, ValueError) as error:
        reason = str(error).split(" (configured timeouts")[0].split(", Timeout:")[0]
        raise OmgError(
            f"mongo_url={masked(url)} does not answer: {reason}. Check "
            "the URL, or leave it out to record to files only."
        ) from error
    return MongoObserver(client=client, db_name=db_name)


def train(words: Sequence[str]) -> RunResult:
    """Run what a command line asks for."""
    config, resumed = plan(words)
    folder = resumed or create_run_folder(config)
    try:
        # Everything that can be refused is refused before Sacred records a run.
        with Run(config, folder) as run:
            state = folder.load_resume() if resumed else None
            result = _with_sacred(run, state) if config.use_sacred else run.go(state)
    except RunInterrupted as stop:
        if folder.resume_steps():
            raise RunInterrupted(
                f"Continue with --resume={folder.path} or the same command and --resume."
            ) from stop
        raise
    finally:
        folder.discard_if_unused()
    if not config.quiet or config.evaluate:
        _closing_lines(config, result)
    return result


def _closing_lines(config: Config, result: RunResult) -> None:
    shown = result.metrics
    if shown:
        print(
            f"Test over {config.test_nepisode} episodes: return {shown['test_return_mean']:.3f} "
            f"± {shown['test_return_std']:.3f}, {shown['test_ep_length_mean']:.1f} steps per "
            "episode"
        )
    else:
        print(f"The run had reached t_max={config.t_max:,} before. Raise t_max to train on.")
    if result.best_return is not None:
        print(f"Best test: {result.best_return:.3f} at step {result.best_step:,}")
    print(f"Everything is in {result.folder}")


def wants_debug(words: Sequence[str]) -> bool:
    """Whether a command line asks for tracebacks; works on one that cannot be read, too."""
    asked = re.compile(r"--debug|(--)?debug=(true|1|yes|on)", re.IGNORECASE)
    return any(asked.fullmatch(word) for word in words)


def report_errors(debug: bool, action: Callable[[], Any]) -> int:
    """Run something; bad input and failures become sentences and exit codes."""
    try:
        action()
    except OmgError as error:
        if debug:
            traceback.print_exc()
        print(f"omg: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        print(f"omg: interrupted. {stop}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has enough of it, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            print(
                f"omg: {type(error).__name__}: {error}. This is a bug or a fault of the "
                "environment; --debug shows where.",
                file=sys.stderr,
            )
        return 1
    return 0


def main(words: Sequence[str]) -> int:
    """`python main.py …` and `omg train …`."""
    if not words or "--help" in words or "-h" in words:
        print(usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # environments of the user, by import path
    return report_errors(wants_debug(words), lambda: train(words))


def usage() -> str:
    return (
        "Usage: omg train --config=<alg> --env-config=<env> [--key=value …] [--flag] "
        "[with a.b=c …]\n"
        f"  alg: {', '.join(available('algs'))}\n"
        f"  env: {', '.join(available('envs'))}\n"
        "  keys: omg config show --config=<alg> --env-config=<env>\n"
        "Example: omg train --config=qmix --env-config=foraging "
        "with env_args.key=Foraging-5x5-2p-1f-v3 t_max=100000"
    )
