"""`python -m benchmarks.profile [case …]`: where the time of training goes.

Three tables. The first shares the CPU time of a run between playing (acting, environment, storing),
sampling and updates. The second shares the time of an update between its parts, by torch.profiler:
every operation's own time goes to the part it ran in, and a backward operation to the part of its
forward one. What the profiler itself costs makes parts of many small operations look larger than
they are. The third compares the kernels with the machine's peak (`benchmarks.roofline`). One torch
thread, CPU seconds.

- recurrent core: the GRU with its own matrix products, and single steps of a recurrent network
- other products: matrix products outside of core and mixer
- mixer: all of it, its matrix products included
- indexing: gathering, packing, joining and copying
- optimiser: the step, clearing gradients, clipping
- element-wise: activations, losses, sums
- rest: Python, the autograd engine, making tensors
"""

from __future__ import annotations

import argparse
import functools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks import omg, roofline, spread
from benchmarks.report import markdown_table, merge_results, plain_table
from benchmarks.training import Training, config_of, scripted_pool
from omg.learners.q_learner import QLearner
from omg.modules.agents.networks import RNNAgent
from omg.modules.kernels.gru import GRUCore, GRUKernel
from omg.modules.kernels.qmix import TDLoss

PIECES = ("acting", "environment", "storing", "sampling", "update")
CORE, PRODUCTS, MIXER, INDEXING = "recurrent core", "other products", "mixer", "indexing"
OPTIMISER, ELEMENTWISE, REST = "optimiser", "element-wise", "rest"
PARTS = (CORE, PRODUCTS, MIXER, INDEXING, OPTIMISER, ELEMENTWISE, REST)
NETWORK, UPDATE = "network", "update"  # labels that only their own time counts for
BACKWARD = "autograd::engine::evaluate_function: "
SECONDS, MOST_UPDATES = 1.5, 10

_PRODUCTS = re.compile(r"^aten::(_?addmm|mm|bmm|baddbmm|matmul|linear|einsum|addmv|mv)\b|_?gemm")
_INDEXING = re.compile(
    r"index|gather|scatter|nonzero|select|slice|cat$|stack|copy|sort|cumsum|arange|repeat|take|"
    r"masked_fill|contiguous|clone|one_hot|narrow|_to_copy|::to$"
)
_OPTIMISER = re.compile(r"_foreach_|^Optimizer\.|_norm$|_fused_")
_REST = re.compile(
    r"^autograd::|^aten::(empty|zeros|ones|full|fill_|zero_|view|reshape|t$|transpose|permute|"
    r"unsqueeze|squeeze|expand|as_strided|detach|lift|resolve|item|_local_scalar|flatten|unflatten)"
)


@dataclass(frozen=True)
class Case:
    """A training run that is looked into; `words` may put files into a folder."""

    what: str
    words: Callable[[Path], Sequence[str]]
    pool: bool = False  # beside 16 frozen recurrent networks


def _fixed(*words: str) -> Callable[[Path], Sequence[str]]:
    return lambda _: words


CASES = {
    "qmix_foraging": Case(
        "QMIX-RNN, Foraging-8x8-2p-3f, 16 copies, 32 x 50",
        _fixed("--config=qmix", "--env-config=foraging", f"--env_args.key={omg.KEY}"),
    ),
    "qmix_spread": Case("QMIX-RNN, Spread, 8 copies, 32 x 26", _fixed(*spread.WORDS)),
    "omg_foraging": Case(
        "OMG (iql_omg), Foraging-8x8-2p-3f, 16 copies, 64 x 50",
        _fixed(*omg.OMG, "--env-config=foraging", f"--env_args.key={omg.KEY}"),
        pool=True,
    ),
    "omg_predator_prey": Case(
        "OMG (ppo_omg), Predator-Prey, 32 copies, 128 x 25",
        lambda folder: (
            *("--config=ppo_omg", "--env-config=predator_prey", "--batch_size_run=32"),
            scripted_pool(folder / "pool", ("chase", "ambush", "flee", "orbit")),
        ),
    ),
    "ppo_predator_prey": Case(
        "PPO (ippo), Predator-Prey, 128 copies, 128 x 25",
        _fixed("--config=ippo", "--env-config=predator_prey", "--batch_size=128"),
    ),
}


def training_of(case: Case, folder: Path) -> Training:
    """The run of a case."""
    config = config_of(case.words(folder))
    if not case.pool:
        return Training(config)
    return Training(config, lineup=omg.lineup(omg.foraging_spec()))


def shares(training: Training, seconds: float) -> dict[str, float]:
    """Environment steps per CPU second, and the share of each of PIECES."""
    training.warm(1)
    first, clock = training.env_steps, training.clock.seconds
    while clock["rollout"] + clock["sampling"] + clock["update"] < seconds:
        made = training.updates
        while training.updates == made:
            training.step()
    clock["storing"] = clock["rollout"] - clock["acting"] - clock["environment"]
    total = sum(clock[piece] for piece in PIECES)
    found = {piece: clock[piece] / total for piece in PIECES}
    return {**found, "env_steps_per_second": (training.env_steps - first) / total}


def _labelled(function: Callable[..., Any], label: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def labelled(*args: Any, **kwargs: Any) -> Any:
        with record_function(label):
            return function(*args, **kwargs)

    return labelled


@contextmanager
def labelled_classes(classes: dict[type, str]) -> Iterator[None]:
    """While open, the profiler sees calls of these classes' public methods under a label."""
    with ExitStack() as stack:
        for kind, label in classes.items():
            for name, function in list(vars(kind).items()):
                if isfunction(function) and not name.startswith("_"):
                    stack.enter_context(patch.object(kind, name, _labelled(function, label)))
        yield


def part_of(name: str) -> str:
    """The part that an operation belongs to by its name alone."""
    if "GRU" in name or "gru" in name:
        return CORE
    for part, pattern in (
        (OPTIMISER, _OPTIMISER),
        (PRODUCTS, _PRODUCTS),
        (REST, _REST),
        (INDEXING, _INDEXING),
    ):
        if pattern.search(name):
            return part
    return ELEMENTWISE if name.startswith("aten::") else REST


def _scope(event: Any) -> str:
    """The innermost part that encloses an event; empty when there is none."""
    while event is not None:
        if event.name in (CORE, MIXER):
            return str(event.name)
        if event.name.startswith("Optimizer."):
            return OPTIMISER
        event = event.cpu_parent
    return ""


def _engine(event: Any) -> Any:
    """The backward node that an event runs in, if any."""
    while event is not None and not event.name.startswith(BACKWARD):
        event = event.cpu_parent
    return event


def parts(events: Sequence[Any]) -> dict[str, float]:
    """Shares of PARTS in everything inside of UPDATE."""
    made_by: dict[int, Any] = {}  # the last forward operation with a number made its backward node
    for event in sorted(events, key=lambda e: e.time_range.start):
        if event.sequence_nr >= 0 and _engine(event) is None:
            made_by[event.sequence_nr] = event
    spent: Counter[str] = Counter()
    for event in events:
        own = event.self_cpu_time_total
        if event.name == NETWORK:
            spent[CORE] += own
        elif event.name == UPDATE:
            spent[REST] += own
        else:
            node = _engine(event)
            scope = _scope(event if node is None else made_by.get(node.sequence_nr))
            spent[scope or part_of(event.name.removeprefix(BACKWARD))] += own
    total = sum(spent.values())
    return {part: spent[part] / total for part in PARTS}


def update_parts(training: Training, seconds: float) -> dict[str, float]:
    """Milliseconds of an update without the profiler, and the share of each of PARTS with it;
    over as many updates as take about so many seconds."""
    classes: dict[type, str] = {RNNAgent: NETWORK, GRUCore: CORE, GRUKernel: CORE, TDLoss: MIXER}
    mixer = training.learner.mixer if isinstance(training.learner, QLearner) else None
    if mixer is not None:
        classes[type(mixer)] = MIXER
    training.clock.seconds.clear()
    training.update(training.whole_batch())
    updates = int(seconds / training.clock.seconds["update"])
    batches = [training.whole_batch() for _ in range(min(max(updates, 2), MOST_UPDATES))]
    training.clock.seconds.clear()
    for batch in batches:
        training.update(batch)
    milliseconds = 1e3 * training.clock.seconds["update"] / len(batches)
    with labelled_classes(classes), profile(activities=[ProfilerActivity.CPU]) as found:
        for batch in batches:
            with record_function(UPDATE):
                training.update(batch)
    return {**parts(found.events()), "milliseconds": milliseconds}


def profile_case(name: str, seconds: float) -> dict[str, Any]:
    """All numbers of a case."""
    with tempfile.TemporaryDirectory() as folder:
        training = training_of(CASES[name], Path(folder))
        run = shares(training, seconds)
        inside = update_parts(training, seconds)
    return {"case": name, "what": CASES[name].what, "run": run, "update": inside}


def _percent(values: dict[str, float], names: Sequence[str]) -> list[str]:
    return [f"{100 * values[name]:.0f} %" for name in names]


def tables(found: Sequence[dict[str, Any]]) -> list[tuple[list[str], list[list[str]]]]:
    """(header, rows) of the run and of the update."""
    whole = [
        [f["what"], f"{f['run']['env_steps_per_second']:,.0f}", *_percent(f["run"], PIECES)]
        for f in found
    ]
    inside = [
        [f["what"], f"{f['update']['milliseconds']:.1f} ms", *_percent(f["update"], PARTS)]
        for f in found
    ]
    return [
        (["run", "env-steps/s", *PIECES], whole),
        (["one update", "takes", *PARTS], inside),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}; default: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--markdown", action="store_true", help="print tables for documents")
    parser.add_argument("--json", type=Path, help="also put the numbers into this file")
    given = parser.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"no case called {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    found = [profile_case(name, given.seconds) for name in given.cases or CASES]
    for header, rows in [*tables(found), (list(roofline.HEADER), roofline.rows())]:
        print((markdown_table if given.markdown else plain_table)(header, rows), end="\n\n")
    if given.json:
        merge_results(given.json, "profile", found)


if __name__ == "__main__":
    main()
