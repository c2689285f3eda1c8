"""What people see of a pipeline: lines for what happened, and a live table on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from omg.experiment.output import wrapped
from omg.studies.process import Running
from omg.studies.steps import Plan, Step


def duration(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def result_text(result: Mapping[str, float]) -> str:
    """A step's numbers in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in result.items())


def time_left(
    running: Sequence[Running], queued: int, mean: float | None, jobs: int
) -> float | None:
    """A guess for one stage: from the pace of running runs and the mean time of finished ones."""
    known = [(child, child.seconds_left()) for child in running]
    totals = [child.seconds() + left for child, left in known if left is not None]
    typical = mean if mean is not None else (sum(totals) / len(totals) if totals else None)
    if typical is None:
        return None
    lefts = [
        left if left is not None else max(0.0, typical - child.seconds()) for child, left in known
    ]
    return max([*lefts, (sum(lefts) + queued * typical) / jobs])


class Display:
    """Plain lines always; on a terminal also a live table with one row per stage."""

    def __init__(
        self, plan: Plan, *, jobs: int, where: str = "", console: Console | None = None
    ) -> None:
        """`jobs`: how many run at a time; `where`: on what, if not simply here."""
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self._plan, self._jobs, self._where = plan, jobs, where
        self._finished: set[str] = set()
        self._seconds: dict[str, list[float]] = {}
        self._live: Live | None = None
        self._width = max(len(step.key) for step in plan.steps)

    def __enter__(self) -> Display:
        plan, at_once = self._plan, f"{self._jobs} run{'s'[: self._jobs != 1]} at a time"
        title = plan.title or f"Pipeline {plan.name} on {plan.env_config}"
        self.say(f"{title}, {at_once}{self._where}, into {plan.out}")
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """A line; on a terminal in lines that fit, without cutting words."""
        lines = wrapped(text, self.console.width) if self.console.is_terminal else [text]
        for line in lines:
            self.console.print(line, soft_wrap=True)

    def _line(self, word: str, step: Step, text: str) -> None:
        self.say(f"{word:<9} {step.key:<{self._width}}  {text}".rstrip())

    def skipped(self, step: Step, seconds: float, result: Mapping[str, float]) -> None:
        self._count(step, seconds)
        self._line("skipped", step, ", ".join(filter(None, ["done before", result_text(result)])))

    def started(self, step: Step, words: str, *, verb: str = "started", reason: str = "") -> None:
        """On a terminal the live table shows it; the command stands in the log."""
        if reason or self._live is None:
            told = f"({reason}) " if reason else ""
            self._line(verb, step, told + ("" if self._live is not None else words))

    def lost(self, step: Step, reason: str) -> None:
        self._line("lost", step, f"({reason}) it is run again")

    def finished(
        self,
        step: Step,
        seconds: float,
        result: Mapping[str, float],
        running: Sequence[Running],
        note: str = "",
    ) -> None:
        self._count(step, seconds)
        left = self._left(step.stage, running)
        told = [note, result_text(result), duration(seconds)]
        told.append("" if left is None else f"about {duration(left)} left of {step.stage}")
        self._line("finished", step, ", ".join(filter(None, told)))

    def _count(self, step: Step, seconds: float) -> None:
        self._finished.add(step.key)
        self._seconds.setdefault(step.stage, []).append(seconds)

    def _left(self, stage: str, running: Sequence[Running]) -> float | None:
        mine = [child for child in running if child.step.stage == stage]
        queued = len(self._plan.of_stage(stage)) - len(mine)
        queued -= sum(step.key in self._finished for step in self._plan.of_stage(stage))
        if not mine and not queued:
            return None
        times = self._seconds.get(stage, [])
        mean = sum(times) / len(times) if times else None
        return time_left(mine, queued, mean, self._jobs)

    def tick(self, running: Sequence[Running]) -> None:
        """Refresh the live table; does nothing without a terminal."""
        if self._live is None:
            return
        table = Table.grid(padding=(0, 2))
        for stage in self._plan.stages():
            steps = self._plan.of_stage(stage)
            done = sum(step.key in self._finished for step in steps)
            mine = [child for child in running if child.step.stage == stage]
            left = self._left(stage, running) if mine else None
            table.add_row(
                stage,
                f"{done}/{len(steps)}",
                "  ".join(_running(child) for child in mine)
                or ("done" if done == len(steps) else ""),
                "" if left is None else f"about {duration(left)} left",
            )
        self._live.update(table)


def _running(child: Running) -> str:
    share = child.progress()
    return child.step.name + ("" if share is None else f" {share:.0%}")
