"""`python -m omg.integrations.ray.child <parent> train …`: the `omg` command, ended in good order
when the worker that started it, the process `parent`, dies."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

LOOK = 0.2  # seconds
GRACE = 60.0


def program() -> tuple[str, ...]:
    """Starts an `omg` command that ends with this process. The child is told whose it is: its
    parent may be gone before it can look."""
    return sys.executable, "-m", "omg.integrations.ray.child", str(os.getpid())


def follow_parent(parent: int) -> None:
    """Stop this process when its parent is gone; a run that does not obey is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    follow_parent(int(sys.argv.pop(1)))
    from omg.registry import load_attribute

    load_attribute("omg.cli.app:main")()


if __name__ == "__main__":
    sys.argv[0] = "omg"
    main()
