"""`python -m omg.integrations.ray.child train …`: the `omg` command, ended in good order when the
worker that started it dies."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

LOOK = 0.2  # seconds
GRACE = 60.0


def follow_parent() -> None:
    """Stop this process when its parent is gone; a run that does not obey is killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    follow_parent()
    from omg.registry import load_attribute

    load_attribute("omg.cli.app:main")()


if __name__ == "__main__":
    sys.argv[0] = "omg"
    main()
