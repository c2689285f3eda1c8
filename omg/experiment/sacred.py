"""Sacred's record of a run: files, and a MongoDB where one is named. Nothing else imports it."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any

from omg.config.loader import masked, without_secrets
from omg.config.schema import Config
from omg.experiment.provenance import PACKAGES, our_sources, requirements, version_of
from omg.experiment.run import Run, RunResult
from omg.types import OmgError, user_path


def go_recorded(run: Run) -> RunResult:
    """`run.go()` as an experiment of Sacred."""
    config = run.config
    root = user_path(config.local_results_path) / "sacred"
    mongo_url = config.mongo_url or os.environ.get("OMG_MONGO_URL", "")
    experiment = _experiment(config, root, mongo_url)
    outcome: list[RunResult] = []

    def my_main(_run: Any) -> float | None:
        notes = {"sacred": f"id {_run._id}, {root / str(_run._id)}"}
        if mongo_url:
            notes["mongo"] = f"{masked(mongo_url)}, database {config.db_name}"
        _run.info["run_folder"] = str(run.folder.path)
        outcome.append(run.go(sinks=(_run.log_scalar,), notes=notes))
        return outcome[0].metrics.get("test_return_mean")

    _drop_incomplete(root / "_sources")
    experiment.main(my_main)
    experiment.run()
    return outcome[0]


def _experiment(config: Config, root: Path, mongo_url: str) -> Any:
    """Imports Sacred only now: it is slow, and a run can do without it (use_sacred=false)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacred import SETTINGS, Experiment
        from sacred.dependencies import Source, get_digest
        from sacred.observers import FileStorageObserver
    SETTINGS["CAPTURE_MODE"] = "no"
    SETTINGS["CONFIG"]["READ_ONLY_CONFIG"] = False
    experiment = Experiment("omg", save_git_info=False)
    experiment.logger = logging.getLogger("omg.sacred")
    experiment.logger.setLevel(logging.CRITICAL)  # failures are reported once, by us
    experiment.observers.append(FileStorageObserver(root))
    if mongo_url:
        experiment.observers.append(_mongo(mongo_url, config.db_name))
    for path in our_sources():  # Sacred itself finds a few, and takes only Python by name
        experiment.sources.add(Source(str(path), get_digest(str(path)), None, None, None))
    for name in sorted({*PACKAGES, *requirements()}):
        if found := version_of(name):
            experiment.add_package_dependency(name, found.partition("+")[0])
    experiment.add_config(without_secrets(config))
    return experiment


def _drop_incomplete(sources: Path) -> None:
    """Remove copies of sources that a full disk cut off: Sacred takes a file for whole by its
    name, which ends in the sum of its content."""
    for path in sources.glob("*_*"):
        if hashlib.md5(path.read_bytes()).hexdigest() != path.stem.rpartition("_")[2]:
            path.unlink()


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
