"""What a pipeline consists of: steps with their commands and settings, in order."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omg.config.loader import masked
from omg.config.schema import marked
from omg.studies.spec import PipelineSpec

STAGES = ("opponents", "pool", "priors", "agents", "crossplay", "report")

# What may differ between two calls: it changes what is shown and recorded, not the result.
FREE = marked(result=False)
# Where things lie; what lies there is known by the fingerprints of the steps that made it.
PLACES = marked(place=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to be done, by one command (the pool: several)."""

    key: str  # e.g. "agents/omg_tuned-s1"; also its place under the pipeline's folder
    stage: str
    kind: Literal["train", "pool", "command"]
    commands: tuple[tuple[str, ...], ...]  # the words behind `omg`
    settings: Mapping[str, Any]  # all that decides its result, beside `needs`
    needs: tuple[str, ...] = ()
    output: Path  # it is there when the step is done
    leaves: tuple[str, ...] = ()  # patterns of further files it makes, under the folder
    free_words: tuple[str, ...] = ()  # a resumed run takes these along
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.key.partition("/")[2] or self.key

    def shown(self) -> list[str]:
        """The commands as a user could type them."""
        return [masked(shlex.join(["omg", *words])) for words in self.commands]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps, each behind those it needs."""

    name: str
    env_config: str
    out: Path
    spec: PipelineSpec
    steps: tuple[Step, ...]

    def of_stage(self, stage: str) -> list[Step]:
        return [step for step in self.steps if step.stage == stage]

    def fingerprints(self) -> dict[str, str]:
        """A hash per step of its settings and of the fingerprints it depends on."""
        found: dict[str, str] = {}
        for step in self.steps:
            content = {"settings": step.settings, "needs": {k: found[k] for k in step.needs}}
            text = json.dumps(content, sort_keys=True)
            found[step.key] = hashlib.sha256(text.encode()).hexdigest()[:32]
        return found
