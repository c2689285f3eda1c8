"""Ray: whether it is there, and which cluster this machine belongs to. Nothing is started."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from omg.cli.doctor.line import Line, import_faults, is_there, reason, version_of

PURPOSE = "sweeps, studies and slow games on several machines (docs/scaling.md)"
INSTALL = "pip install 'omg-marl[ray]'"
NONE = "none runs on this machine; without --address Ray is started for the command alone"
# Asked by a Python of its own: importing Ray takes a second, and only where there is a cluster.
QUESTION = """
import sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5).values()
there = [node for node in nodes if node.state == 0]
print(len(there), sum(node.resources_total.get("CPU", 0) for node in there))
"""


def ray_lines() -> list[Line]:
    """Version, the cluster that --address=auto means, and its cores."""
    if not is_there("ray"):
        return [Line("Ray", "ray", "missing", f"not installed; for {PURPOSE}", INSTALL)]
    if fault := import_faults(["ray"]).get("ray"):
        told = f"installed, but cannot be imported: {fault}; for {PURPOSE}"
        return [Line("Ray", "ray", "problem", told, f"{INSTALL} --force-reinstall")]
    return [Line("Ray", "ray", "ok", f"{version_of('ray')}; for {PURPOSE}"), _cluster()]


def _cluster() -> Line:
    address = _address()
    if not address:
        return Line("Ray", "cluster", "ok", NONE)
    advice = "start it again (ray start --head), or unset RAY_ADDRESS"
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except (OSError, ValueError) as error:
        told = f"{address} does not answer: {reason(error)}"
        return Line("Ray", "cluster", "problem", told, advice)
    try:
        asked = [sys.executable, "-c", QUESTION, address]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
        machines, cpus = done.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        told = f"{address} does not say what it has: {reason(error)}"
        return Line("Ray", "cluster", "problem", told, advice)
    counted = f"{machines} machine{'s' if machines != '1' else ''}, {float(cpus):g} CPUs"
    return Line("Ray", "cluster", "ok", f"{address}: {counted}; --address=auto uses it")


def _address() -> str:
    """What --address=auto means: the variable, else what `ray start` wrote down here."""
    told = os.environ.get("RAY_ADDRESS", "")
    if told:
        return "" if told in ("auto", "local") else told
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    return ""
