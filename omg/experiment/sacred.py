"""Sacred's record of a run: files, and databases where they are named; Sacred's own commands.
Nothing else imports it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, SacredWords
from omg.config.loader import leaves, masked, merged_files, read_yaml, without_secrets
from omg.config.schema import ALIASES, Config
from omg.experiment.checks import DATABASES, shown_flags
from omg.experiment.provenance import PACKAGES, our_sources, requirements, source_commit, version_of
from omg.experiment.run import Run, RunResult
from omg.experiment.sinks import ScalarSink
from omg.registry import trusted_modules
from omg.types import OmgError, RunFailedError, user_path

ROOT = Path(__file__).parents[1]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def go_recorded(run: Run, *, words: SacredWords, given: Mapping[str, Any]) -> RunResult:
    """`run.go()` as an experiment of Sacred; `given` is what the command line set."""
    flags = words.flags
    root = user_path(flags.get("file_storage") or f"{run.config.local_results_path}/sacred")
    experiment = _experiment(without_secrets(run.config))
    mongo = _observe(experiment, run.config, root, flags)
    printed, own_capture = _Printed(), "capture" not in flags
    if own_capture:
        experiment.captured_out_filter = lambda _: printed.text
    began: list[bool] = []
    outcome: list[RunResult] = []

    def my_main(_run: Any) -> float | None:
        began.append(True)
        notes = {"sacred": f"id {_run._id}, {root / str(_run._id)}", "mongo": mongo}
        _run.info = {"run_folder": str(run.folder.path)}
        try:
            outcome.append(run.go(sinks=(_run.log_scalar, _series(_run)), notes=notes))
        finally:
            if own_capture:  # Sacred does not look again after a failure
                _run.captured_out = printed.text
        return outcome[0].metrics.get("test_return_mean")

    _drop_incomplete(root / "_sources")
    experiment.main(my_main)
    to_sacred = ("comment", "beat-interval", "id", "name", "capture", *DATABASES)
    options = {f"--{key}": flags[key] for key in to_sacred if key in flags}
    said = {f"--{key}": masked(text) or True for key, text in flags.items()}
    meta = {
        "config_updates": dict(given),
        "options": experiment.get_default_options() | said,
    }
    with printed.listening() if own_capture else contextlib.nullcontext():
        try:
            experiment.run(meta_info=meta, options=options)
        except (ImportError, ValueError, OSError) as error:
            if began:
                raise
            module = error.name if isinstance(error, ImportError) else None
            missing = (module or "").partition(".")[0]
            advice = f"Install it: pip install {missing}" if missing else "Check it"
            kind = RunFailedError if isinstance(error, OSError) else OmgError
            raise kind(
                f"Sacred cannot record this run: {error}. {advice}, or record otherwise than with "
                f"{shown_flags(flags) or 'files (use_sacred=False)'}."
            ) from error
    return outcome[0]


def _series(recorded: Any) -> ScalarSink:
    """Every metric as two lists of info.json, `<key>` and `<key>_T`, as PyMARL's logger writes
    them. New keys come with a new dictionary: Sacred's own thread may be reading the old one."""

    def add(name: str, value: float, env_steps: int) -> None:
        if name not in recorded.info:
            recorded.info = {**recorded.info, name: [], f"{name}_T": []}
        recorded.info[f"{name}_T"].append(env_steps)
        recorded.info[name].append(value)

    return add


# --- Sacred's commands ----------------------------------------------------------------------------


def changes(arguments: Arguments, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command line and its files set, and the configuration as it was before."""
    heads = [update.path.partition(".")[0] for update in arguments.updates]
    heads += [key for name in arguments.files for key in read_yaml(Path(name), name)]
    given: dict[str, Any] = {}
    before: dict[str, Any] = {}
    raw = dict(leaves(merged_files(arguments).values))
    named = {ALIASES.get(head, head) for head in heads}
    for path, value in leaves(without_secrets(config)):
        changed = path.partition(".")[0] in named and (path not in raw or raw[path] != value)
        if changed:
            _put(given, path, value)
        if not changed or path in raw:
            _put(before, path, raw[path] if changed else value)
    return given, before


def _put(values: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for part in above:
        values = values.setdefault(part, {})
    values[last] = value


def show(command: str, arguments: Arguments, config: Config, *, file: str = "config.json") -> None:
    """Carry out one of Sacred's own commands, which run nothing."""
    if command == "print_config":
        given, before = changes(arguments, config)
        _experiment(before).run(command, config_updates=given, options={"--force": True})
        return
    if not file.endswith((".json", ".yaml", ".yml")):
        raise OmgError(f"config_filename={file} ends in neither .json nor .yaml. Change it.")
    values = without_secrets(config)
    if command == "save_config":
        values["config_filename"] = file
    _experiment(values).run(command)
    if command == "save_config":
        print(f"Saved {file}. 'with {file}' uses it.")


# --- the experiment ------------------------------------------------------------------------------


def _experiment(values: Mapping[str, Any]) -> Any:
    """Imports Sacred only now: it is slow, and a run can do without it (use_sacred=false)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacred import SETTINGS, Experiment
        from sacred.dependencies import Source, get_digest
    SETTINGS["CAPTURE_MODE"] = "no"
    SETTINGS["CONFIG"]["READ_ONLY_CONFIG"] = False
    experiment = Experiment("omg", save_git_info=False)
    experiment.logger = logging.getLogger("omg.sacred")
    if not logging.getLogger("omg").level:  # failures are reported once, by us
        experiment.logger.setLevel(logging.CRITICAL)
    for path in [*our_sources(), *_own_sources()]:  # Sacred itself finds a few, Python only
        experiment.sources.add(Source(str(path), get_digest(str(path)), None, None, None))
    for name, found in _packages().items():
        with contextlib.suppress(ValueError):  # a version that Sacred cannot read
            experiment.add_package_dependency(name, found.partition("+")[0])
    if commit := source_commit():
        for source in experiment.sources:
            if source.filename == __file__:
                source.repo, source.is_dirty = f"git:/{ROOT.parent}", commit.endswith("+changes")
                source.commit = commit.partition("+")[0]
    experiment.add_config(dict(values))
    return experiment


def _drop_incomplete(sources: Path) -> None:
    """Remove copies of sources that a full disk cut off: Sacred takes a file for whole by its
    name, which ends in the sum of its content."""
    for path in sources.glob("*_*"):
        if hashlib.md5(path.read_bytes()).hexdigest() != path.stem.rpartition("_")[2]:
            path.unlink()


def _own_sources() -> list[Path]:
    """What was imported from the folders of the user's own parts."""
    files = {
        name: Path(file)
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and file.endswith(".py")
    }
    installed = (Path(sys.prefix), Path(sys.base_prefix), ROOT)
    folders = {files[name].parent for name in trusted_modules() if name in files}
    return sorted(
        path
        for path in set(files.values())
        if folders & set(path.parents) and not set(installed) & set(path.parents)
    )


def _packages() -> dict[str, str]:
    """Every distribution that is imported or that an environment may need, with its version."""
    imported = {name.partition(".")[0] for name in list(sys.modules)} - {"omg"}
    found: dict[str, str] = {}
    for each in distributions():
        if imported & _modules_of(each):
            found.setdefault(each.metadata["Name"], each.version)
    for name in {*PACKAGES, *requirements(), "omg-marl"} - set(found):
        found[name] = version_of(name)
    return {name: version for name, version in sorted(found.items()) if version}


def _modules_of(distribution: Distribution) -> set[str]:
    """The top-level modules that a distribution brings. As `packages_distributions` of the
    standard library, which takes half a second for it."""
    named = distribution.read_text("top_level.txt")
    if named:
        return set(named.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return {line.partition(",")[0].partition("/")[0].partition(".")[0] for line in files}


def _observe(experiment: Any, config: Config, root: Path, flags: Mapping[str, str]) -> str:
    """Add the observers; what the run's header says of a MongoDB."""
    from sacred.observers import FileStorageObserver

    if (taken := root / flags.get("id", "")) != root and taken.exists():
        raise OmgError(f"--id={flags['id']}: {taken} exists already. Choose another id.")
    experiment.observers.append(FileStorageObserver(root))
    url, where = config.mongo_url, {"db_name": config.db_name}
    if "mongo_db" in flags:
        if url:
            raise OmgError("mongo_url and --mongo_db both name a MongoDB. Leave out one of them.")
        where = _parse_mongo(flags["mongo_db"])
        url = where.pop("url")
    url = url or os.environ.get("OMG_MONGO_URL", "")
    if not url:
        return ""
    experiment.observers.append(_mongo(url, where))
    return f"{masked(url)}, database {where['db_name']}"


def _parse_mongo(text: str) -> dict[str, Any]:
    """[host:port:]db_name[.collection[:id]][!priority], read by Sacred."""
    from sacred.observers.mongo import parse_mongo_db_arg

    try:
        found = dict(parse_mongo_db_arg(text))
    except (AttributeError, ValueError) as error:
        raise OmgError(
            f"--mongo_db={text} is not understood. Write [host:port:]db_name[.collection], e.g. "
            "localhost:27017:omg."
        ) from error
    return {"url": "localhost:27017", "db_name": "sacred", **found}


def _mongo(url: str, where: Mapping[str, Any]) -> Any:
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
    return MongoObserver(client=client, **where)


# --- what a run prints ---------------------------------------------------------------------------


class _Printed:
    """What a run prints, in whole lines as they are seen: a progress bar is its last state. Other
    than Sacred's own ways it leaves the terminal a terminal, and its text only grows."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open = ""

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def add(self, text: str) -> None:
        *whole, last = (self._open + text).split("\n")
        self._lines += [f"{_seen(line)}\n" for line in whole]
        self._open = last.rpartition("\r")[2]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Tee(stream, self) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _seen(line: str) -> str:
    return ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])


class _Tee:
    """A stream that also tells `printed` what is written to it."""

    def __init__(self, stream: Any, printed: _Printed) -> None:
        self._stream, self._printed = stream, printed

    def write(self, text: str) -> int:
        self._printed.add(text)
        return int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
