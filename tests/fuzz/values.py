"""Values that nobody means, and YAML files that nobody writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

ODD = (
    *("", " ", "nan", "inf", "-inf", "1e999", "-1", "0", "-0.0", "1e-320", "0.5", "2", "3.0"),
    *("10000", "1000000", "2147483648", "9223372036854775807", "9223372036854775808", "1e18"),
    *("99999999999999999999999", "9" * 6000, "-" + "9" * 6000, "0x7f", "1_000", "٣", "½", "1,5"),
    *("True", "False", "true", "none", "None", "null", "yes", "[]", "{}", "()", "[1", "{'a': 1}"),
    *("[1, 2]", "[0]", "[-1]", "['a']", "[[1]]", "[None]", "{'a': {'b': {'c': 1}}}", "{1: 2}"),
    *("{None: 1}", "{'': 1}", "{'a.b': 1}", "{(1, 2): 3}", "[" * 300, "{'a':" * 50, "1" * 400),
    *("x" * 5000, "x" * 300, "ü" * 200, "日本語", "🦊", "\u202eabc", "\x1b[31mred\x1b[0m", "a\nb"),
    *("a\tb", "\r", "\x07", "'", '"', "\\", "%s%n", "${HOME}", "$(touch sprung)", "`id`", ";ls"),
    *("--", "-", "=", "==", "a=b", "..", ".", "/", "../x", "../../x", "./x", "a/b", "x/", "//"),
    *("/dev/null", "/dev/null/x", "/proc/nope", "/etc/passwd", "~", "~nosuchuser", "loop", "trap"),
    *("~nosuchuser/x", "a/" * 2500, "results", "results/iql", "results/agent", "results/prior"),
    *(
        "pool",
        "pool/pool.json",
        "crossplay",
        "trap.py",
        "loop/x",
        "nowhere",
        "os:system",
        ":",
        "a:",
    ),
    *(":b", "os:nothing", "nosuchmodule:X", "trap:Nothing", "omg.types:OmgError", "builtins:eval"),
    *("omg.nothing:X", "json:JSONDecoder", "qmix", "iql", "rnn", "foraging", "foragin", "latest"),
    *(
        "b'bytes'",
        "1j",
        "...",
        "lambda: 1",
        "__import__('os')",
        "2024-01-01",
        "12:30",
        "!!python/x",
    ),
    *(
        "mongodb://me:secret@host",
        "http://x",
        "file:///etc/passwd",
        "cuda",
        "cuda:99",
        "mps",
        "NaN",
    ),
)
TEAMS = (
    *("1iql1iql_am", "2iql", "1iql1iql", "0iql", "iql", "1", "11", "1iql1", "1iql1nothing"),
    *("-1iql2iql_am", "1.5iql", "99999999999iql1iql_am", "900iql900iql_am", "1iql 1iql_am"),
    *("1d3qn1d3qn_omg", "1d3qn_omg1d3qn", "1qmix1vdn", "1ppo1iql_am", "1iql1iql_omg", "０iql1iql"),
    *("1iql" * 400, "", "1" * 5000 + "iql", "1../../x1iql"),
)
FILES = {
    "circular.yaml": "env_args: &a\n  x: *a\n",
    "deep.yaml": "a: " + "[" * 3000 + "]" * 3000 + "\n",
    "deep_maps.yaml": "\n".join(" " * n + "a:" for n in range(400)) + "\n",
    "bomb.yaml": "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "date.yaml": "label: 2024-01-01\nseed: 2024-01-01T00:00:00\n",
    "twice.yaml": "lr: 0.1\nlr: 0.2\n",
    "python.yaml": "label: !!python/object/apply:os.system ['touch sprung']\n",
    "list.yaml": "- a\n- b\n",
    "text.yaml": "just text\n",
    "empty.yaml": "",
    "null.yaml": "null\n",
    "binary.yaml": "\x00\x01\x02",
    "tabs.yaml": "env_args:\n\tkey: x\n",
    "keys.yaml": "1: 2\nnull: 3\n[a, b]: 4\n",
    "bool_key.yaml": "true: 1\n",
    "anchor.yaml": "env_args: *nothing\n",
    "merge.yaml": "<<: {lr: 0.1}\n",
    "merge_odd.yaml": "<<: 3\n",
    "digits.yaml": f"seed: {'9' * 6000}\n",
    "float.yaml": "lr: .nan\ngamma: .inf\n",
    "set.yaml": "env_args: !!set {a, b}\n",
    "binary_tag.yaml": "label: !!binary aGVsbG8=\n",
    "omap.yaml": "env_args: !!omap [a: 1]\n",
    "documents.yaml": "lr: 0.1\n---\nlr: 0.2\n",
    "long_key.yaml": f"{'k' * 5000}: 1\n",
    "escapes.yaml": 'label: "\\e[31mred"\n',
    "surrogate.yaml": 'label: "\\uD800"\n',
    "good.yaml": "lr: 0.001\n",
    "wide.yaml": "".join(f"k{n}: 1\n" for n in range(30_000)),
    "nested.json": "[" * 100_000,
    "good.json": '{"lr": 0.001}',
    "broken.json": '{"lr": ',
    "pipeline.yaml": "env_config: foraging\nopponents: 3\nagents: []\n",
    "half_pipeline.yaml": "env_config: foraging\nagents: {seeds: [1, 1], methods: [{name: x}]}\n",
}


def write_files(folder: Path, names: Sequence[str]) -> None:
    """The odd files that are named, and things that are no files, into a folder."""
    for name in {*names} & {*FILES}:
        (folder / name).write_bytes(FILES[name].encode("utf-8", "surrogatepass"))
    (folder / "latin.yaml").write_bytes(b"label: \xff\xfe\n")
    (folder / "folder.yaml").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "gone.yaml").symlink_to("nowhere")


NAMES = (*FILES, "latin.yaml", "folder.yaml", "loop.yaml", "gone.yaml", "missing.yaml")


def odd(rng: Random) -> str:
    """Any odd value; now and then one that was never thought of."""
    if rng.random() < 0.1:
        letters = "0123456789.,:;-_+*/\\'\"[]{}()<>=~!?%$&#@ aeinx\t\n\x00\x1b\x7fé𝔸"
        text = "".join(rng.choice(letters) for _ in range(rng.randint(1, 30)))
        return text.replace("\x00", "")
    if rng.random() < 0.15:
        return str(rng.choice([rng.randint(-100, 100), rng.random(), 2 ** rng.randint(0, 80)]))
    return rng.choice(ODD)
