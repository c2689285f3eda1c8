"""Checked arguments of native environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from omg.registry import nearest
from omg.types import OmgError

A = TypeVar("A", bound=BaseModel)


def parse_arguments(kind: type[A], values: A | Mapping[str, Any], *, game: str) -> A:
    """Arguments from a mapping; what does not fit is an OmgError that names the first of it."""
    if isinstance(values, kind):
        return values
    assert isinstance(values, Mapping)
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            known = kind.model_fields
            raise OmgError(
                f"{game} has no argument '{field}'{nearest(field, known) or '.'} "
                f"Choose among: {', '.join(known)}."
            ) from error
        raise OmgError(
            f"{game} argument '{field}' is {first['input']!r}. {first['msg']}."
        ) from error
