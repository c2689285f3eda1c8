"""Everything a report shows, collected from folders into one frozen value."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omg.evaluation.crossplay_table import Crossplay, Opponent
from omg.evaluation.curves import evaluation_note
from omg.evaluation.gap import FILE, read_headroom
from omg.evaluation.grouping import check_seeds, distinguish
from omg.evaluation.headroom import Headroom
from omg.evaluation.named import Named, read_named
from omg.experiment.series import Curve
from omg.opponents.unseen import Look, looks_in
from omg.registry import nearest
from omg.report.formats import DRAWN, Replay, read_crossplay, read_pool, read_replay
from omg.report.looks import Kind, kind_of, looks_of, nth_look
from omg.report.metrics import logged_name, played_name
from omg.report.runs import RunRecord, find_runs, read_run
from omg.types import OmgError

DEFAULT_METRIC = "test_own_return_mean"  # unless the cross-play names another
FALLBACK_METRIC = "test_return_mean"
TUNING = "tuning.csv"  # the configurations that were tried
NEAREST = "nearest.csv"  # how far members that are not trained with are from those that are
MAX_REPLAYS = 24
MAX_FILMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """The parts of a report; what was not found is None or empty."""

    sources: tuple[Path, ...]
    title: str
    metric: str  # of the runs, shown first
    methods: tuple[str, ...]
    kinds: Mapping[str, Kind]  # what each method knows about the others
    looks: Mapping[str, int]  # colour and dashes of each method
    agents: tuple[RunRecord, ...]
    priors: tuple[RunRecord, ...]
    crossplay: Crossplay | None
    headroom: Headroom | None
    tuning: tuple[Mapping[str, str], ...]  # rows of tuning.csv
    nearest: tuple[Mapping[str, str], ...]  # rows of nearest.csv
    unseen_looks: tuple[Look, ...]  # at the held-out side of the pool
    named: tuple[Named, ...]  # what the pipeline's file said, and when
    opponents: tuple[Opponent, ...]
    opponent_runs: Mapping[str, RunRecord]  # by the folder's name
    replays: tuple[tuple[str, Replay], ...]  # with the file's name
    films: tuple[tuple[str, str], ...]  # moving pictures (SVG) with the file's name
    notes: tuple[str, ...]  # what was left out and why

    @property
    def played(self) -> str:
        """The chosen metric's name in `crossplay.json`."""
        return played_name(self.metric)

    def slot(self, method: str) -> int:
        """The number of a method's look."""
        return self.looks.get(method, nth_look(len(self.looks)))

    def runs_of(self, method: str) -> list[RunRecord]:
        return [run for run in self.agents if run.method == method]

    def curves_of(self, method: str, metric: str) -> list[Curve]:
        """A metric of all seeds of a method that logged it."""
        return [run.curves[metric] for run in self.runs_of(method) if metric in run.curves]

    def metrics_known(self) -> list[str]:
        """Names logged by any agent, in the order of the files."""
        return list(dict.fromkeys(name for run in self.agents for name in run.curves))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Several studies on one page; a method has the same look in all of them."""

    sources: tuple[Path, ...]
    title: str
    names: tuple[str, ...]
    studies: tuple[ReportData, ...]
    kinds: Mapping[str, Kind]
    looks: Mapping[str, int]

    @property
    def methods(self) -> tuple[str, ...]:
        """Those of all studies, each once."""
        return tuple(self.looks)

    @property
    def agents(self) -> tuple[RunRecord, ...]:
        return tuple(run for study in self.studies for run in study.agents)

    @property
    def replays(self) -> tuple[tuple[str, Replay], ...]:
        return tuple(replay for study in self.studies for replay in study.replays)

    @property
    def films(self) -> tuple[tuple[str, str], ...]:
        return tuple(film for study in self.studies for film in study.films)

    @property
    def notes(self) -> tuple[str, ...]:
        named = zip(self.names, self.studies, strict=True)
        return tuple(f"{name}: {words}" for name, study in named for words in study.notes)


def is_study(source: Path) -> bool:
    """Whether a folder is a pipeline's, or holds a cross-play: it is not mixed with others."""
    return (source / "crossplay.json").is_file() or (source / "agents").is_dir()


def collect_all(
    sources: Sequence[Path], *, title: str = "", metric: str = ""
) -> ReportData | SideBySide:
    """One study from all sources; several beside each other where at least two are studies."""
    folders = list({source.resolve(): source for source in sources}.values())
    if sum(is_study(source) for source in folders) < 2:
        return collect(folders, title=title, metric=metric)
    studies = []
    for source in folders:
        try:
            studies.append(collect([source], metric=metric))
        except OmgError as error:
            raise OmgError(f"{source}, one of {len(folders)} studies: {error}") from error
    kinds = {m: k for study in reversed(studies) for m, k in study.kinds.items()}
    kinds = {m: kinds[m] for m in dict.fromkeys(m for s in studies for m in s.methods)}
    looks = looks_of(kinds)
    names = [source.resolve().name for source in folders]
    if len(set(names)) < len(names):
        names = [str(source) for source in folders]
    return SideBySide(
        sources=tuple(folders),
        title=title or " and ".join(names),
        names=tuple(names),
        studies=tuple(dataclasses.replace(s, looks=looks, kinds=kinds) for s in studies),
        kinds=kinds,
        looks=looks,
    )


def collect(sources: Sequence[Path], *, title: str = "", metric: str = "") -> ReportData:
    """Read a pipeline's folder, or any folders of runs. An empty metric: the one that the
    cross-play was asked for, else the agent's own return, or the team's where nobody logged it."""
    if not sources:
        raise OmgError("There is nothing to report on. Give a pipeline's folder, or runs.")
    for source in sources:
        if not source.is_dir():
            raise OmgError(f"{source} is not a folder. Give a pipeline's folder, or runs.")
    notes: list[str] = []
    runs = _read_runs(sources, notes)
    crossplay = _one_crossplay(sources)
    replays = _replays(sources, notes)
    films = _films(sources, notes)
    if not (runs or crossplay or replays or films):
        raise OmgError(
            f"{', '.join(map(str, sources))}: no runs with metrics, no crossplay.json and no "
            "replays in there. Give a pipeline's folder, or runs."
        )
    agents = _named_like(crossplay, [run for run in runs if run.role == "agent"])
    methods = _methods(agents, crossplay)
    kinds = _kinds(methods, agents, crossplay)
    return ReportData(
        sources=tuple(sources),
        title=title or _title(agents, crossplay),
        metric=_metric(metric, agents, crossplay),
        methods=methods,
        kinds=kinds,
        looks=looks_of(kinds),
        agents=tuple(agents),
        priors=tuple(run for run in runs if run.role == "prior"),
        crossplay=crossplay,
        headroom=_headroom(sources),
        tuning=_rows(sources, TUNING),
        nearest=_rows(sources, NEAREST),
        unseen_looks=_unseen_looks(sources),
        named=tuple(line for source in sources for line in read_named(source)),
        opponents=_opponents(sources, crossplay),
        opponent_runs={run.path.name: run for run in runs if run.role == "opponent"},
        replays=tuple(replays),
        films=films,
        notes=tuple(notes),
    )


def _read_runs(sources: Sequence[Path], notes: list[str]) -> list[RunRecord]:
    found = {run.resolve(): (run, role) for source in sources for run, role in find_runs(source)}
    records = []
    for run, role in found.values():
        record = read_run(run, role)
        if record is not None and record.config.get("evaluate"):
            notes.append(evaluation_note(run))
        elif record is None:
            notes.append(f"{run.name} has logged nothing yet and is left out.")
        else:
            records.append(record)
    return records


def _one_crossplay(sources: Sequence[Path]) -> Crossplay | None:
    files = [path for source in sources if (path := source / "crossplay.json").is_file()]
    if len(files) > 1:
        raise OmgError(
            f"There are {len(files)} cross-play tables ({', '.join(map(str, files))}), a study has "
            "one. Give one of these folders, or compare them with omg report."
        )
    return read_crossplay(files[0]) if files else None


def _headroom(sources: Sequence[Path]) -> Headroom | None:
    files = [path for source in sources if (path := source / FILE).is_file()]
    return read_headroom(files[0]) if files else None


def _rows(sources: Sequence[Path], name: str) -> tuple[Mapping[str, str], ...]:
    """A table of the study, as its file lists it."""
    rows: list[Mapping[str, str]] = []
    for path in (source / name for source in sources):
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows += list(csv.DictReader(file))
    return tuple(rows)


def _unseen_looks(sources: Sequence[Path]) -> tuple[Look, ...]:
    return tuple({look.key: look for source in sources for look in looks_in(source)}.values())


def _replays(sources: Sequence[Path], notes: list[str]) -> list[tuple[str, Replay]]:
    files = [path for source in sources for path in sorted((source / "replays").glob("*.json"))]
    replays = []
    for path in files:
        replay = read_replay(path)
        if replay.env not in DRAWN:
            notes.append(f"{path.name} is a replay of {replay.env}, which cannot be drawn here.")
        else:
            replays.append((path.stem, replay))
    if len(replays) > MAX_REPLAYS:
        notes.append(f"{len(replays)} replays were found; the first {MAX_REPLAYS} are shown.")
    # Those with inferences first.
    replays.sort(key=lambda pair: pair[1].subgoals is None and pair[1].beliefs is None)
    return replays[:MAX_REPLAYS]


def _films(sources: Sequence[Path], notes: list[str]) -> tuple[tuple[str, str], ...]:
    files = [path for source in sources for path in sorted((source / "replays").glob("*.svg"))]
    if len(files) > MAX_FILMS:
        notes.append(f"{len(files)} moving pictures were found; the first {MAX_FILMS} are shown.")
    return tuple((path.stem, path.read_text(encoding="utf-8")) for path in files[:MAX_FILMS])


def _opponents(sources: Sequence[Path], crossplay: Crossplay | None) -> tuple[Opponent, ...]:
    """Those that were played, else those of the pool."""
    if crossplay and crossplay.opponents:
        return crossplay.opponents
    for source in sources:
        for path in (source / "pool" / "pool.json", source / "pool.json"):
            if path.is_file():
                return read_pool(path)
    return ()


def _named_like(crossplay: Crossplay | None, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs called as the cross-play table calls them; with their task where there are several, and
    with what differs between runs of one name."""
    names = {}
    for agent in crossplay.agents if crossplay else ():
        names[agent.id] = agent.method
        if agent.run:
            names[Path(agent.run).name] = agent.method
    several = len({run.task for run in runs}) > 1
    plain = [names.get(r.path.name, r.method) + f" ({r.task})" * several for r in runs]
    methods = distinguish(plain, [run.config for run in runs])
    for method in dict.fromkeys(methods):
        same = [run for run, name in zip(runs, methods, strict=True) if name == method]
        check_seeds(method, [(run.path, run.seed) for run in same])
    return [dataclasses.replace(r, method=m) for r, m in zip(runs, methods, strict=True)]


def _methods(agents: Sequence[RunRecord], crossplay: Crossplay | None) -> tuple[str, ...]:
    played = [agent.method for agent in crossplay.agents] if crossplay else []
    return tuple(dict.fromkeys([*played, *(run.method for run in agents)]))


def _kinds(
    methods: Sequence[str], agents: Sequence[RunRecord], crossplay: Crossplay | None
) -> dict[str, Kind]:
    """What each method knows about the others, as its runs say, else the cross-play."""
    found = {a.method: kind_of(a.am_model) for a in (crossplay.agents if crossplay else ())}
    for run in agents:
        model, goal = run.config.get("am_model"), run.config.get("moa_goal")
        found[run.method] = kind_of(str(model or ""), goal)
    return {method: found[method] for method in methods}


def _title(agents: Sequence[RunRecord], crossplay: Crossplay | None) -> str:
    tasks = dict.fromkeys(run.task for run in agents)
    if not tasks and crossplay:
        tasks = {str(crossplay.env_args.get("key") or crossplay.env): None}
    return " and ".join(tasks) or "Replays"


def _metric(asked: str, agents: Sequence[RunRecord], crossplay: Crossplay | None) -> str:
    known = {name for run in agents for name in run.curves}
    played = {name for cell in crossplay.cells for name in cell.metrics} if crossplay else set()
    if asked:
        if asked not in known and played_name(asked) not in played:
            choice = sorted(known | played)
            hint = nearest(asked, choice) or f". There are: {', '.join(choice) or 'none'}."
            raise OmgError(f"No run has the metric '{asked}'{hint}")
        return asked
    if crossplay and crossplay.metric in played:
        return logged_name(crossplay.metric)
    if DEFAULT_METRIC in known or played_name(DEFAULT_METRIC) in played or not known:
        return DEFAULT_METRIC
    return FALLBACK_METRIC
