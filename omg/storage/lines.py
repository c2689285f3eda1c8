"""Files of records that are only ever added to: one JSON object per line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from omg.types import OmgError

T = TypeVar("T")


def append_line(path: Path, line: str, advice: str) -> None:
    """Add a line in one write, so that several processes may do so at once, and be sure that it is
    on disk. After a line that a crash cut off it begins a new one."""
    try:
        with path.open("a+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(f"{line}\n".encode())
            os.fsync(file.fileno())
    except OSError as error:
        why = error.strerror or error
        raise OmgError(f"{path} cannot be written: {why}. {advice}") from error


def read_lines(path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    """Every record; none where there is no file. A line cut off by a crash is left out."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield kind.validate_json(line)
        except ValidationError as error:
            if "EOF" not in str(error.errors()[0]["msg"]):
                raise OmgError(f"{path}, line {number}, is damaged. Restore it.") from error
