"""The pool: who was played."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.crossplay_table import Opponent
from omg.report.data import ReportData
from omg.report.html import Child, Html, el, figure, join, note, number, section, table
from omg.report.results import side_name, splits_of


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
        head.append("last test return")
    sides = [f"{sum(o.split == s for o in members)} {side_name(s).lower()}" for s in order]
    caption = join(
        f"The pool: {' and '.join(sides)}. Seen: training drew from them; unseen: held out. "
        "Listed by ",
        el("code", "omg pool list"),
        ".",
    )
    content = table(
        head, rows, caption="Members of the pool", numeric=[2, *([5] if trained else [])]
    )
    return section("opponents", "Opponents", figure(content, caption))


def _row(data: ReportData, member: Opponent, trained: bool) -> Sequence[Child]:
    seed = "–" if member.seed is None else str(member.seed)
    side = "seen" if member.split == "train" else "unseen" if member.split == "heldout" else ""
    row = [member.id, member.algorithm, seed, member.skill, side or member.split]
    if trained:
        run = data.opponent_runs.get(member.run.rstrip("/").rpartition("/")[2])
        curve = run.curves.get("test_return_mean") if run else None
        row.append(number(None if curve is None else float(curve.values[-1])))
    return row
