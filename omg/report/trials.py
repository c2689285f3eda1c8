"""How methods were tuned: every configuration that was tried, with its score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from omg.report.data import ReportData
from omg.report.html import Child, Html, decimals, el, figure, join, number, section, swatch, table
from omg.report.metrics import describe


def tuning_section(data: ReportData) -> Html:
    """All configurations by method, the chosen ones in bold."""
    rows = data.tuning
    places = decimals(float(row["mean"]) for row in rows)
    lines: list[Sequence[Child]] = [
        [
            join(swatch(data.slot(row["method"])), " ", row["method"]),
            row["configuration"],
            el("code", row["settings"]),
            el("strong" if row["chosen"] == "True" else "span", number(float(row["mean"]), places)),
            f"{int(row['env_steps']):,}",
            "chosen" if row["chosen"] == "True" else "",
        ]
        for row in rows
    ]
    metric = describe(rows[0]["metric"]).title
    head = ["Method", "Configuration", "Settings", metric, "Steps", ""]
    content = table(head, lines, caption="Tuning", numeric=[1, 3, 4], wrap=[2])
    return section("tuning", "Tuning", figure(content, _caption(data)))


def _caption(data: ReportData) -> str:
    counts = Counter(row["method"] for row in data.tuning)
    budgets = sorted(set(counts.values()))
    each = " to ".join(str(n) for n in dict.fromkeys((budgets[0], budgets[-1])))
    untuned = [method for method in data.methods if method not in counts]
    seeds = {len(row["seeds"].split()) for row in data.tuning}
    words = (
        f"Every tuned method was given {each} configurations ({len(counts)} methods, "
        f"{' or '.join(map(str, sorted(seeds)))} seed(s) each), drawn by the same search from its "
        "own space and compared with validation opponents only. Configuration 0 is the "
        "method's own."
    )
    return words + (f" Not tuned: {', '.join(untuned)}." if untuned else "")
