"""Ray's tests, skipped only where Ray is not installed: `test_without_ray.py` says so."""

from __future__ import annotations

import importlib.util

collect_ignore = []
if importlib.util.find_spec("ray") is None:
    collect_ignore = ["test_cluster.py", "test_search.py", "test_sweep.py", "test_schedulers.py"]
    collect_ignore += ["test_progress.py", "test_tuning.py"]
