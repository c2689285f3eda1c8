"""The pool: who was played."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.crossplay_table import Opponent
from omg.evaluation.words import SIDES
from omg.experiment.series import Curve
from omg.report.data import ReportData
from omg.report.html import Child, Html, el, figure, join, note, number, section, table
from omg.report.sides import side_name, splits_of


def opponents_section(data: ReportData) -> Html:
    """A table of the pool's members, seen ones first."""
    if not data.opponents:
        missing = note("No pool was found (pool/pool.json, or crossplay.json with opponents).")
        return section("opponents", "Opponents", missing)
    order = splits_of(o.split for o in data.opponents)
    members = sorted(data.opponents, key=lambda o: order.index(o.split))
    head = ["id", "algorithm", "seed", "skill", "side"]
    trained = bool(data.opponent_runs)
    rows = [_row(data, member, trained) for member in members]
    if trained:
        head.append("team return in its test")
    counts = {s: sum(o.split == s for o in members) for s in order}
    sides = [f"{n} {side_name(s).lower()}"[: -1 if n == 1 else None] for s, n in counts.items()]
    caption = join(
        f"The pool: {' and '.join(sides)}. Seen: training drew from them; unseen: held out. "
        + "Validation: tests and tuning are judged by them. " * ("validation" in counts)
        + "Listed by ",
        el("code", "omg pool list"),
        ".",
        " The return is that of the test nearest to the step at which the checkpoint was saved."
        if trained
        else "",
    )
    content = table(
        head, rows, caption="Members of the pool", numeric=[2, *([5] if trained else [])]
    )
    return section("opponents", "Opponents", figure(content, caption), _differences(data))


def _differences(data: ReportData) -> Html | None:
    """How far the members that agents did not train with are from those that they did, and what a
    best response gains with them, beside what it gains with the training ones."""
    if not data.nearest:
        return None
    gains = {row.opponent: row.difference for row in data.headroom.rows()} if data.headroom else {}
    head = ["Not trained with", "Side", "Acts differently", "Nearest training member"]
    lines: list[Sequence[Child]] = []
    among = [float(row["disagreement"]) for row in data.nearest if row["side"] == "train"]
    for row in data.nearest:
        if row["side"] == "train":
            continue
        side = SIDES.get(row["side"], row["side"])
        share = number(float(row["disagreement"]), 3)
        lines.append([row["member"], side, share, row["nearest"], _gain(gains.get(row["member"]))])
    known = [g for m, g in gains.items() if g is not None and _is_trained_with(data, m)]
    beside = ""
    if among:
        mean = number(sum(among) / len(among), 3)
        beside = f" Training members differ by {mean} on average from the nearest other one."
    if known:
        mean = number(sum(known) / len(known), 3)
        beside += f" Gain: best response minus plain; {mean} on average with the training members."
    caption = join(
        "Share of the same decisions in which the member and the training member nearest to it act "
        f"differently: near 0 it is no test of anything new.{beside} Made by ",
        el("code", "omg pool compare"),
        ".",
    )
    titles = [*head, "Gain"]
    content = table(titles, lines, caption="Differences from training members", numeric=[2, 4])
    return figure(content, caption)


def _gain(value: float | None) -> str:
    return "–" if value is None else number(value, 3, sign=True)


def _is_trained_with(data: ReportData, member: str) -> bool:
    return any(o.id == member and o.split == "train" for o in data.opponents)


def _row(data: ReportData, member: Opponent, trained: bool) -> Sequence[Child]:
    seed = "–" if member.seed is None else str(member.seed)
    side = SIDES.get(member.split, member.split)
    row = [member.id, member.algorithm, seed, member.skill, side]
    if trained:
        run = data.opponent_runs.get(member.run.rstrip("/").rpartition("/")[2])
        curve = run.curves.get("test_return_mean") if run else None
        row.append("–" if curve is None else _tested(curve, _saved_at(member)))
    return row


def _saved_at(member: Opponent) -> int | None:
    """When a checkpoint was saved; older files say it in the id only."""
    if member.env_steps is not None:
        return member.env_steps
    step = member.id.rpartition("-")[2]
    return int(step) if step.isdecimal() else None


def _tested(curve: Curve, saved: int | None) -> str:
    """The test nearest to a step, with its own step where that is another one."""
    at = -1 if saved is None else int(abs(curve.steps - saved).argmin())
    words, step = number(float(curve.values[at])), int(curve.steps[at])
    return words if step == saved else f"{words} (step {step:,})"
