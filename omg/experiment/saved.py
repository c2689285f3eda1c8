"""A run on disk as Python users see it."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from omg.config.arguments import Arguments
from omg.config.loader import load_saved
from omg.config.schema import Config
from omg.envs.contract import BatchedEnv
from omg.envs.registry import make_batched
from omg.experiment.agent import Agent, load_agent
from omg.experiment.series import Curve, curves_of, read_records
from omg.types import OmgError, user_path

if TYPE_CHECKING:
    from omg.experiment.export import Exported


class SavedRun:
    """The folder of a run: its configuration, its metrics, its agent, its environment."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = user_path(folder)
        path = self.folder / "config.yaml"
        if not path.is_file():
            raise OmgError(f"{folder} is not a run (no config.yaml in it). Give a run's folder.")
        self.config: Config = load_saved(path, Arguments()).config

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        return read_records(self.folder)

    @property
    def curves(self) -> dict[str, Curve]:
        """Every metric as arrays: `run.curves["test_return_mean"].steps` and `.values`."""
        return curves_of(self._records)

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of every metric."""
        return {name: float(curve.values[-1]) for name, curve in self.curves.items()}

    def frame(self) -> Any:
        """All records as a `pandas.DataFrame`, one row per environment step that was logged."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise OmgError(
                "frame() needs the package 'pandas'. Install it (pip install 'omg-marl[pandas]'), "
                "or use `curves`."
            ) from error
        steps = sorted({record["t_env"] for record in self._records})
        columns = {
            name: dict(zip(curve.steps.astype(np.int64), curve.values, strict=True))
            for name, curve in self.curves.items()
        }
        index = pandas.Index(steps, name="t_env")
        return pandas.DataFrame({k: pandas.Series(v) for k, v in columns.items()}, index=index)

    def agent(self, which: str | int = "last") -> Agent:
        """What it trained, to act with: `last` or `best` weights, or those of a saved step."""
        return load_agent(self.folder, which)

    def make_env(self, n_copies: int = 1) -> BatchedEnv:
        """Copies of the environment it was trained in."""
        return make_batched(self.config.env, self.config.env_args, n_copies=n_copies)

    def export(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        which: str | int = "last",
        format: str | None = None,
    ) -> Exported:
        """Write its policy for other programs, as .onnx or .pt2; none named: agent.onnx in its
        folder. What was written is compared with the run's own policy."""
        from omg.experiment.export import export_agent  # which imports torch's exporters

        return export_agent(self.folder, out, which=which, format=format)

    def __repr__(self) -> str:
        return f"omg.Run({str(self.folder)!r})"

    def __fspath__(self) -> str:
        return str(self.folder)
