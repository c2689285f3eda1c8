"""Where metrics go beside metrics.jsonl. Each place is a `ScalarSink`: TensorBoard, a CSV file, and
trackers that come with an extra (Weights & Biases)."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from omg.config.schema import Config
from omg.experiment import tensorboard
from omg.registry import Registry
from omg.storage.files import RunFolder, new_file, writing
from omg.storage.locks import refuse_link
from omg.types import OmgError

Row: TypeAlias = dict[str, Any]
STEPS = "t_env"


class ScalarSink(Protocol):
    """Called with name, value and environment step, the steps never falling."""

    def __call__(self, name: str, value: float, env_steps: int, /) -> None: ...


class Tracker(ScalarSink, Protocol):
    """A sink that must be closed, and that may have something to say in the run's header."""

    note: str

    def close(self, *, failed: bool) -> None: ...


# Called with config=, folder=, records= (what was logged before).
TRACKERS: Registry[Any] = Registry("tracker", {"wandb": "omg.integrations.wandb:WandbTracker"})


def trackers_of(
    config: Config, folder: RunFolder, *, env_steps: int | None, records: Iterable[Row]
) -> Iterator[tuple[str, Tracker]]:
    """What the configuration asks for, by name. `records` is what metrics.jsonl holds, and
    `env_steps` the step at which a run goes on; None: it begins."""
    before = list(records)
    if config.use_tensorboard and not config.evaluate and tensorboard.usable():
        yield "tensorboard", TensorBoardTracker(folder.path / "tb", env_steps)
    if config.use_csv:
        yield "csv", CsvTracker(folder.path / "metrics.csv", before)
    if config.use_wandb:
        yield "wandb", TRACKERS["wandb"](config=config, folder=folder, records=before)


def check_trackers(config: Config) -> None:
    """Refuse a tracker that is not installed, and settings of one that is not used."""
    if config.use_wandb:
        TRACKERS["wandb"]
        return
    for key in ("wandb_entity", "wandb_mode"):
        if value := getattr(config, key):
            raise OmgError(f"{key}={value} has no effect without use_wandb=true. Leave it out.")


def scalars(records: Iterable[Row]) -> Iterator[tuple[str, float, int]]:
    """Records of metrics.jsonl as a sink was called with them; what was not finite, or is no
    record at all (a damaged file), is left out."""
    for record in records:
        if not isinstance(record.get(STEPS), int):
            continue
        for name, value in record.items():
            if name not in (STEPS, "wall_s") and isinstance(value, int | float):
                yield name, float(value), int(record[STEPS])


class TensorBoardTracker:
    """Events for TensorBoard; what a run that goes on will log again is hidden."""

    note = ""

    def __init__(self, folder: Path, env_steps: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if env_steps is None else env_steps + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def __call__(self, name: str, value: float, env_steps: int) -> None:
        self._writer.add_scalar(name, value, env_steps)

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class CsvTracker:
    """metrics.csv: a row per environment step that was logged, a column per metric. A row is
    written when the next one begins; a new column means that the file is written again."""

    note = ""

    def __init__(self, path: Path, records: Iterable[Row] = ()) -> None:
        refuse_link(path)
        self._path = path
        self._columns = [STEPS]
        self._row: Row = {}
        rows: dict[int, Row] = {}
        for name, value, env_steps in scalars(records):
            rows.setdefault(env_steps, {STEPS: env_steps})[name] = value
        *whole, self._row = list(rows.values()) or [{}]
        if whole:
            self._rewrite(whole)
        else:
            path.unlink(missing_ok=True)

    def __call__(self, name: str, value: float, env_steps: int) -> None:
        if env_steps != self._row.get(STEPS):
            self._flush()
            self._row = {STEPS: env_steps}
        self._row[name] = value

    def close(self, *, failed: bool) -> None:
        with contextlib.suppress(OmgError):  # a full disk was reported before
            self._flush()

    def _flush(self) -> None:
        if not self._row:
            return
        if self._path.exists() and set(self._row) <= set(self._columns):
            with writing(self._path), self._path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(self._row)
        else:
            self._rewrite([*self._written(), self._row])
        self._row = {}

    def _written(self) -> list[Mapping[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def _rewrite(self, rows: list[Any]) -> None:
        names = {name for row in rows for name in row} - {*self._columns}
        self._columns += sorted(names)
        with new_file(self._path) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)
