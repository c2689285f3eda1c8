"""The entry point: command line → configuration → Sacred experiment → run."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, parse_arguments
from omg.config.loader import load, load_saved
from omg.config.schema import Config
from omg.run import Run, RunResult
from omg.storage.run_folder import RunFolder, create_run_folder, find_run_to_resume
from omg.telemetry.logger import ScalarSink
from omg.training import RunInterrupted
from omg.types import OmgError

# What may differ between a run and its continuation; everything else would change its result.
RESUME_MAY_CHANGE = frozenset(
    [
        *("resume", "run_name", "local_results_path", "t_max", "keep_models"),
        *("quiet", "debug", "log_interval", "use_tensorboard", "use_sacred"),
        *("mongo_url", "db_name", "save_replay", "replay_episodes"),
        *("worker_timeout", "on_worker_failure", "max_worker_restarts"),
    ]
)


def _resume_value(arguments: Arguments) -> bool | str:
    values = [u.value for u in arguments.updates if u.path == "resume"]
    return values[-1] if values else False


def plan(words: Sequence[str]) -> tuple[Config, RunFolder | None]:
    """The configuration of a command line, and the run to continue, if any."""
    arguments = parse_arguments(words)
    resume = _resume_value(arguments)
    if not resume:
        return load(arguments).config, None
    if isinstance(resume, str) and resume.lower() != "true":
        folder = RunFolder(Path(resume).expanduser())
        if not folder.config.is_file():
            raise OmgError(f"resume={resume} is not the folder of a run (no config.yaml in it).")
        wanted = load(arguments).config if arguments.alg or arguments.env else None
    else:
        wanted = load(arguments).config
        folder = find_run_to_resume(wanted)
    saved = load_saved(folder.config, Arguments()).config.as_dict()
    named = {u.path.split(".")[0] for u in arguments.updates}
    asked = wanted.as_dict() if wanted else load_saved(folder.config, arguments).config.as_dict()
    for key, value in asked.items():
        if key not in RESUME_MAY_CHANGE and value != saved[key]:
            raise OmgError(
                f"{folder.path} was started with {key}={saved[key]}, not {value}. A continuation "
                "cannot change that; start a new run, or leave it out."
            )
    keep = [u for u in arguments.updates if u.path.split(".")[0] in RESUME_MAY_CHANGE & named]
    return load_saved(folder.config, Arguments(updates=tuple(keep))).config, folder


def _execute(config: Config, folder: RunFolder, *, resume: bool, sacred_run: Any) -> RunResult:
    notes: dict[str, str] = {}
    sinks: tuple[ScalarSink, ...] = ()
    if sacred_run is not None:
        where = Path(config.local_results_path) / "sacred" / str(sacred_run._id)
        notes = {"sacred": f"id {sacred_run._id}, {where}"}
        sinks = (sacred_run.log_scalar,)
        sacred_run.info["run_folder"] = str(folder.path)
    with Run(config, folder, sinks=sinks, notes=notes) as run:
        if config.evaluate:
            return run.evaluate()
        return run.train(folder.load_resume() if resume else None)


def _with_sacred(config: Config, folder: RunFolder, *, resume: bool) -> RunResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacred import SETTINGS, Experiment
        from sacred.observers import FileStorageObserver
    SETTINGS["CAPTURE_MODE"] = "no"
    SETTINGS["CONFIG"]["READ_ONLY_CONFIG"] = False
    experiment = Experiment("omg", save_git_info=False)
    experiment.logger = logging.getLogger("omg.sacred")
    experiment.logger.setLevel(logging.ERROR)
    observer = FileStorageObserver(Path(config.local_results_path).expanduser() / "sacred")
    experiment.observers.append(observer)
    if config.mongo_url:
        experiment.observers.append(_mongo(config))
    experiment.add_config(config.as_dict())
    outcome: list[RunResult] = []

    def my_main(_run: Any) -> float | None:
        outcome.append(_execute(config, folder, resume=resume, sacred_run=_run))
        return outcome[0].metrics.get("test_return_mean")

    experiment.main(my_main)
    experiment.run()
    return outcome[0]


def _mongo(config: Config) -> Any:
    try:
        import pymongo
    except ModuleNotFoundError as error:
        raise OmgError(
            "mongo_url needs the package 'pymongo'. Install it: pip install 'omg-marl[mongo]'"
        ) from error
    from sacred.observers import MongoObserver

    client: Any = pymongo.MongoClient(config.mongo_url, serverSelectionTimeoutMS=5000)
    try:
        client.admin.command("ping")
    except pymongo.errors.PyMongoError as error:
        raise OmgError(
            f"mongo_url={config.mongo_url} does not answer: {str(error)[:120]}. Check the URL, or "
            "leave it out to record to files only."
        ) from error
    return MongoObserver(client=client, db_name=config.db_name)


def train(words: Sequence[str]) -> RunResult:
    """Run what a command line asks for."""
    config, resumed = plan(words)
    folder = resumed or create_run_folder(config)
    go = _with_sacred if config.use_sacred else _without_sacred
    result = go(config, folder, resume=resumed is not None)
    if not config.quiet or config.evaluate:
        _closing_lines(config, result)
    return result


def _without_sacred(config: Config, folder: RunFolder, *, resume: bool) -> RunResult:
    return _execute(config, folder, resume=resume, sacred_run=None)


def _closing_lines(config: Config, result: RunResult) -> None:
    shown = result.metrics
    print(
        f"Test over {config.test_nepisode} episodes: return {shown['test_return_mean']:.3f} "
        f"± {shown['test_return_std']:.3f}, {shown['test_ep_length_mean']:.1f} steps per episode"
    )
    if result.best_return is not None:
        print(f"Best test: {result.best_return:.3f} at step {result.best_step:,}")
    print(f"Everything is in {result.folder}")


def report_errors(debug: bool, action: Any) -> int:
    """Run something; bad input and failures become sentences and exit codes."""
    try:
        action()
    except OmgError as error:
        if debug:
            traceback.print_exc()
        print(f"omg: {error}", file=sys.stderr)
        return error.exit_code
    except RunInterrupted:
        print("omg: interrupted. Continue with the same command and --resume.", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("omg: interrupted.", file=sys.stderr)
        return 130
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
    debug = any(w in ("--debug", "--debug=True", "--debug=true", "debug=True") for w in words)
    return report_errors(debug, lambda: train(words))
