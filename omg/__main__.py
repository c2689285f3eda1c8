"""`python -m omg …` is the `omg` command."""

import contextlib
import os
import sys
from pathlib import Path


def leave_current_folder() -> None:
    """Undo what `-m` does: it lets files of the current folder, which may lie beside a received
    run, pass for packages. The user's own modules are found when they are named."""
    with contextlib.suppress(OSError):  # the current folder is gone
        if sys.path[:1] == [os.getcwd()] and Path(__file__).parents[1] != Path.cwd():
            del sys.path[0]


if __name__ == "__main__":
    leave_current_folder()
    from omg.cli.app import main

    main()
