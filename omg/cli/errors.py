"""How a command runs: failures become sentences and exit codes."""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from omg.cli.console import in_lines, printable

LEAST_MEMORY = 700 << 20  # bytes; torch cannot be loaded with less than about 650 MiB
# A word of a message that nobody reads to its end, e.g. a value of 6,000 digits.
TOO_LONG = re.compile(r"\S{400,}")
NO_MEMORY = re.compile("(can't|cannot|not enough|unable to) (allocate )?memory|bad_alloc", re.I)
ASKED_BYTES = re.compile(r"allocate (\d+) bytes")
ASKED = re.compile(r"--debug|(--)?debug=(true|1|yes|on)", re.IGNORECASE)


def wants_debug(words: Sequence[str]) -> bool:
    """Whether a command line asks for tracebacks; works on one that cannot be read, too."""
    return any(ASKED.fullmatch(word) for word in words)


def trusting(words: Sequence[str]) -> list[str]:
    """The words without --trust=module, which lets saved files name code of that module."""
    end = list(words).index("--") if "--" in words else len(words)
    asked = [word for word in words[:end] if word.startswith("--trust=")]
    if asked:
        from omg.registry import trust  # slow to import

        trust(*(word.partition("=")[2] for word in asked))
    return [word for word in words if word not in asked]


def run(debug: bool, action: Callable[[], Any], *, computes: bool = True) -> int:
    """Do what a command is for; the exit code."""
    allowed = _memory_limit()
    if computes and allowed < LEAST_MEMORY:
        advice = f"Allow at least {LEAST_MEMORY >> 20} MiB"
        return _tell(f"this process may have {allowed >> 20} MiB (ulimit -v). {advice}.", 1)
    return report_errors(debug, action)


def _memory_limit() -> int:
    """Bytes that this process may have. With too few of them torch ends it without a word."""
    try:
        import resource
    except ImportError:  # not Unix
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def report_errors(debug: bool, action: Callable[[], Any]) -> int:
    """Do something; bad input and failures become sentences and exit codes."""
    try:
        action()
    except typer.Exit:  # the action chose its exit code
        raise
    except SystemExit as stop:
        return _tell(f"an environment ended the program (SystemExit {stop.code}). Correct it.", 1)
    except KeyboardInterrupt as stop:
        return _tell(f"interrupted. {stop}".rstrip(), 130)
    except BrokenPipeError:  # whoever read our output has enough of it, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if debug:
            traceback.print_exc()
        return report(error, debug)
    return 0


def report(error: Exception, debug: bool = False) -> int:
    """Say what went wrong, where a traceback has not yet; the exit code."""
    if isinstance(error, ImportError):
        advice = "'omg doctor' says what is missing and what to do."
        return _tell(f"a needed package cannot be imported: {error}. {advice}", 1)
    from omg.types import OmgError  # needs numpy: a command starts without it

    if isinstance(error, OmgError):
        return _tell(str(error), error.exit_code)
    if debug:
        return 1
    said = _words_of(error)
    if isinstance(error, MemoryError) or NO_MEMORY.search(said):
        advice = "Make networks, buffers or the number of copies smaller, or free some"
        return _tell(f"there is not enough memory ({_memory_words(said)}). {advice}.", 1)
    if isinstance(error, OSError) and error.errno is not None and not _own_code(error):
        advice = "Check that it exists, its permissions, free space and limits (ulimit -a)"
        return _tell(f"the operating system refused: {said}. {advice}.", 1)
    where = _own_code(error)
    advice = f"It arose in {where}" if where else "This is a bug or a fault of the environment"
    return _tell(f"{type(error).__name__}: {said}. {advice}; --debug shows where.", 1)


def _memory_words(said: str) -> str:
    """How much was asked for at once and how much there is, if the refusal tells."""
    asked = ASKED_BYTES.search(said)
    if asked is None:
        return said or "none is left"
    from omg.experiment.checks import machine_memory  # slow to import

    there = machine_memory() / 2**30
    return f"{int(asked[1]) / 2**30:,.1f} GiB at once, and this process can have {there:,.1f} GiB"


def _words_of(error: BaseException) -> str:
    """What an exception says, even one of somebody else's that fails at that."""
    try:
        return str(error)
    except Exception:
        return "it says nothing"


def _own_code(error: Exception) -> str:
    """The last line of the user's own code on the way to an error, if there is any."""
    from omg.registry import EXTRAS  # slow to import

    ours = str(Path(__file__).parents[1])
    foreign = (ours, sys.prefix, sys.base_prefix, "<")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(foreign)]
    if not own and frames:  # a game of another package, e.g. with arguments it does not check
        package = frames[-1].filename.partition("site-packages/")[2].partition("/")[0]
        own = [frames[-1]] if package in EXTRAS or package in ("gymnasium", "smac") else []
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def _tell(sentence: str, code: int) -> int:
    shown = printable(TOO_LONG.sub(lambda word: f"{word[0][:100]}…", sentence))
    text = f"omg: {shown}"
    if sys.stderr.isatty():  # words stay whole, as they do not where the terminal breaks lines
        wide = shutil.get_terminal_size().columns
        lines = [in_lines(line, columns=wide) for line in text.splitlines()]
        text = "\n".join(lines)
    print(text, file=sys.stderr)
    return code
