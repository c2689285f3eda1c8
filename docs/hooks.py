"""What the site needs beside the pages in docs/: README and its neighbours, and the examples."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from links import OUTSIDE, ROOT, SHOWN, relinked, site_uri


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for name, uri in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        content = relinked(text, name) if name.endswith(".md") else _shown(name, text, "text")
        files.append(File.generated(config, uri, content=content))
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in SHOWN:
            name = f"examples/{path.name}"
            files.append(File.generated(config, site_uri(name) or "", content=_example(name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links from docs/ to what lies beside it."""
    if page.file.generated_by:
        return markdown
    return relinked(markdown, f"docs/{page.file.src_uri}")


def _example(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        return relinked(_notebook(json.loads(text)), name)
    return _shown(name, text, "python")


def _shown(name: str, text: str, language: str) -> str:
    return f"# {name}\n\n````{language}\n{text}\n````\n"


def _notebook(content: dict[str, Any]) -> str:
    """A notebook with the outputs it was saved with."""
    parts = []
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [part for output in cell["outputs"] if (part := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="what the cell draws" src="data:image/png;base64,{picture}">'
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return f"```text\n{text}\n```" if text else ""
