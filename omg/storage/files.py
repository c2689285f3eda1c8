"""Safe files: temporary name, then rename; tensors are read without unpickling code."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from omg.types import OmgError, RunFailedError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into a sentence."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"{path} could not be written: {error.strerror or error}. Free space or choose another "
            "local_results_path; what was saved before is intact."
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


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one go."""
    temporary = path.with_name(f".{path.name}.part-{os.getpid()}")
    with writing(path):
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def save_tensors(path: Path, content: Any) -> None:
    """`torch.save`; a refused write is the operating system's error, which torch hides."""
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:
        hidden: BaseException | None = error
        while hidden is not None and not isinstance(hidden, OSError):
            hidden = hidden.__context__
        if hidden is None:
            raise
        raise hidden from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OmgError(f"{path} is damaged ({error}). Use another checkpoint.") from error
    if not isinstance(content, dict):
        raise OmgError(f"{path} is damaged (no mapping inside). Use another checkpoint.")
    return content


def load_tensors(
    path: Path, *, advice: str = "Use another checkpoint, e.g. another load_step."
) -> Any:
    """Tensors and plain values only; nothing is executed while loading."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise OmgError(f"{path} does not exist. Check checkpoint_path and load_step.") from error
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
