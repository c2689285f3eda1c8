"""Checksums beside saved files: what was changed or damaged since then is noticed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omg.types import OmgError

FILE = "sha256.json"
log = logging.getLogger("omg.storage")
_remarked: set[Path] = set()


def sha256_of(path: Path) -> str:
    """The hash of a file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise OmgError(f"{path} cannot be read: {error.strerror}. Restore it.") from error


def write_sums(folder: Path, **facts: Any) -> None:
    """Note the sums of all files of a complete folder, and what else is known of it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != FILE)
    sums = {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}
    text = json.dumps({"files": sums, **facts}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read_sums(folder: Path, advice: str) -> dict[str, Any]:
    """What was noted of a folder; empty, with a remark, where an older version wrote it."""
    path = folder / FILE
    if not path.is_file():
        if folder not in _remarked:
            _remarked.add(folder)
            log.warning(
                "%s has no checksums (an older version wrote it): damage shows late.", folder
            )
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = content["files"]
        if not all(isinstance(value, str) for value in files.values()):
            raise ValueError("no checksums inside")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise OmgError(f"{path} is damaged ({str(error)[:100]}). {advice}") from error
    return dict(content)


def check_sums(
    folder: Path, names: Sequence[str], *, advice: str = "Use another checkpoint."
) -> dict[str, Any]:
    """Refuse files of a folder that are not as they were saved; what was noted of it."""
    noted = read_sums(folder, advice)
    for name in names if noted else ():
        path = folder / name
        if name not in noted["files"]:
            raise OmgError(f"{path} was not saved with the other files there. {advice}")
        if sha256_of(path) != noted["files"][name]:
            raise OmgError(f"{path} is damaged or was changed since it was saved. {advice}")
    return noted


def check_finite(content: Any, path: Path, *, advice: str = "Use another checkpoint.") -> None:
    """Refuse weights that are not numbers: nothing can be learned or played with them."""
    for key, value in tensors_in(content):
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise OmgError(f"{path}: {key or 'it'} holds numbers that are not finite. {advice}")


def tensors_in(content: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of nested mappings and lists with its dotted name."""
    if isinstance(content, Tensor):
        yield prefix, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from tensors_in(value, f"{prefix}.{key}".lstrip("."))
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from tensors_in(value, f"{prefix}.{number}".lstrip("."))
