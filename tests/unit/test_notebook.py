"""The notebook in examples/ runs from top to bottom, and is shown with what its cells give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def cells(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def pictures(content: dict[str, Any]) -> int:
    outputs = [output for cell in cells(content) for output in cell["outputs"]]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_the_notebook_is_kept_with_its_pictures_and_without_an_error() -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert pictures(content) == 3
    assert all(cell["execution_count"] for cell in cells(content))
    kinds = {output["output_type"] for cell in cells(content) for output in cell["outputs"]}
    assert "error" not in kinds
    assert NOTEBOOK.stat().st_size < 300_000


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install 'omg-marl[notebook]'")
    nbclient = pytest.importorskip("nbclient", reason="pip install 'omg-marl[notebook]'")
    pytest.importorskip("ipykernel", reason="pip install 'omg-marl[notebook]'")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in cells(notebook):
        cell["outputs"] = []
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=550, resources=resources).execute()
    assert pictures(notebook) == 3
    said = "".join(output.get("text", "") for cell in cells(notebook) for output in cell["outputs"])
    assert "steps, return " in said
    (results,) = (tmp_path / "results").iterdir()
    assert len(list(results.glob("*/models/last"))) == 5
    assert (results / "pool").is_dir()
