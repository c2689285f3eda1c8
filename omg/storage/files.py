"""Safe files (temporary name, then rename; nothing is unpickled), and the folder of a run."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError

from omg.config.loader import dump, read_yaml
from omg.config.schema import Config
from omg.registry import nearest
from omg.storage.sums import check_sums, write_sums
from omg.types import OmgError, RunFailedError, user_path

T = TypeVar("T")

RUN = "run.json"  # a run's identity, and what it was made with


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into a sentence."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"{path} could not be written: {error.strerror or error}. Free space or choose another "
            "folder; what was saved before is intact."
        ) from error


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when it is complete; an old one is replaced."""
    temporary = path.with_name(f".{path.name}.part-{os.getpid()}")
    with writing(path):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            if path.exists():
                old = path.with_name(f".{path.name}.old-{os.getpid()}")
                shutil.rmtree(old, ignore_errors=True)
                path.rename(old)
                try:
                    temporary.rename(path)
                except BaseException:
                    old.rename(path)
                    raise
                shutil.rmtree(old, ignore_errors=True)
            else:
                temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written below a folder. A complete folder that was
    being replaced at that moment gets its name back."""
    for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
        found = re.fullmatch(r"\.(.+)\.(part|old)-(\d+)(\.\w+)?", path.name)
        if found is None or _is_alive(int(found[3])):
            continue
        name = path.with_name(found[1])
        with contextlib.suppress(OSError):
            if found[2] == "old" and not name.exists():
                path.rename(name)
            elif path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file that appears under its name only when it is complete; an old one is replaced. What
    is written until then has the same ending."""
    temporary = path.with_name(f".{path.stem}.part-{os.getpid()}{path.suffix}")
    with writing(path):
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one go."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(path: Path, content: Any) -> None:
    """`torch.save`; a refused write is the operating system's error, which torch hides, and so is
    an interruption."""
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:
        hidden: BaseException | None = error
        while hidden is not None and not isinstance(hidden, OSError | KeyboardInterrupt):
            hidden = hidden.__context__
        if hidden is None:
            raise
        raise hidden from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OmgError(f"{path} is damaged ({error}). Use another checkpoint.") from error
    if not isinstance(content, dict):
        raise OmgError(f"{path} is damaged (no mapping inside). Use another checkpoint.")
    return content


def read_checked(kind: type[T], path: Path, advice: str) -> T:
    """A JSON file as a dataclass; the first thing wrong with it is said in a sentence."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OmgError(f"{path} cannot be read: {error}. Check the file.") from error
    return checked(kind, text, path, advice)


def checked(kind: type[T], text: str, path: Path, advice: str) -> T:
    """The same of a text that was found in a file."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise OmgError(f"{path} {_explain(error, kind, advice)}") from error


def _explain(error: ValidationError, kind: type, advice: str) -> str:
    problem = error.errors(include_url=False)[0]
    where, of = problem["loc"], ""
    if problem["type"] == "json_invalid":
        return f"is damaged ({problem['msg']}). {advice}"
    if len(where) > 2 and isinstance(where[1], int):  # a field of an element of a list
        of = f" of {str(where[0]).removesuffix('s')} {where[1] + 1}"
        where = where[2:]
    key = ".".join(map(str, where)) or "the whole file"
    if problem["type"] == "missing":
        return f"lacks the field '{key}'{of}. {advice}"
    if key == "format":
        found = f"has format {problem['input']!r}, this version reads 1."
        return f"{found} Use the version that wrote it."
    if problem["type"] == "unexpected_keyword_argument":
        parts = (kind, *get_args(get_type_hints(kind).get("members")))
        known = [f.name for part in parts if is_dataclass(part) for f in fields(part)]
        return f"has an unknown field '{key}'{of}{nearest(key, known) or '. Remove it.'}"
    expected = str(problem["msg"]).removeprefix("Input should be ")
    shown = repr(problem["input"])
    shown = shown if len(shown) <= 60 else shown[:60] + " …"
    return f"has {shown} for '{key}'{of}, expected: {expected}. {advice}"


def load_tensors(
    path: Path, *, advice: str = "Use another checkpoint, e.g. another load_step."
) -> Any:
    """Tensors and plain values only; nothing is executed while loading."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise OmgError(f"{path} does not exist. {advice}") from error
    except (PermissionError, IsADirectoryError) as error:
        raise OmgError(f"{path} cannot be read: {error.strerror}. {advice}") from error
    except Exception as error:  # damaged bytes make torch raise nearly anything
        raise OmgError(f"{path} {_damage(path, error)}. {advice}") from error


def _damage(path: Path, error: Exception) -> str:
    if path.stat().st_size == 0:
        return "is empty"
    if isinstance(error, pickle.UnpicklingError) and zipfile.is_zipfile(path):
        return "holds more than weights (Python objects, which are never loaded)"
    return "is cut off, damaged or not a file of weights"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run; knows how to find what was saved."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def id(self) -> str:
        """What tells this run from all others (run.json); empty for runs of older versions."""
        path = self.path / RUN
        return str(read_json(path).get("id", "")) if path.is_file() else ""

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
            write_sums(part, run=self.id)
        for step in older:
            if step != env_steps:
                shutil.rmtree(self.resume / str(step), ignore_errors=True)

    def load_resume(self) -> dict[str, Any]:
        steps = self.resume_steps()
        if not steps:
            raise OmgError(
                f"{self.path} has no resume state. It ended before resume_interval; start it again."
            )
        path = self.resume / str(steps[-1]) / "state.pt"
        advice = f"The run cannot be continued; checkpoint_path={self.path} loads its weights."
        noted = check_sums(path.parent, [path.name], advice=advice)
        if self.id and noted.get("run", self.id) != self.id:
            raise OmgError(f"{path} is the resume state of another run. {advice}")
        state = load_tensors(path, advice=advice)
        if not isinstance(state, dict):
            raise OmgError(f"{path} is not a resume state. {advice}")
        return state

    def discard_if_unused(self) -> None:
        """Remove the folder of a run that failed before it did anything, to free its name."""
        there = {path.name: path.stat().st_size for path in self.path.iterdir()}
        if there.pop(self.metrics.name, 0) == 0 and there.keys() <= {self.config.name, RUN}:
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
    root = user_path(config.local_results_path)
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
    try:
        write_text(folder.config, dump(config))
    except OmgError:
        shutil.rmtree(path, ignore_errors=True)  # an empty run would only be in the way
        raise
    return folder


def find_run_to_resume(config: Config) -> RunFolder:
    """The run called run_name, or the newest with this algorithm, environment and seed."""
    root = user_path(config.local_results_path)
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
