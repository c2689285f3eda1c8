"""What a results page writes: its numbers, each with its study, its methods, its column and the
words around it. Nothing is judged here (`results_check` does that)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

Texts = tuple[str, ...]

_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>|(?:Python |arXiv:)[\d.]+", re.S)
# A number with decimals or an exponent, or whole with a per cent sign; perhaps its half interval.
_FOUND = re.compile(
    r"(?<![\w.,])(?P<sign>[+−-]?)"
    r"(?P<number>\d+(?:\.\d+)?e-?\d+|\d[\d,]*\.\d+|\.\d+|\d+(?= %))"
    r"(?:\s*±\s*(?P<half>\d+(?:\.\d+)?))?(?P<percent> %)?(?![\w]|\.\d)"
)
_WHOLE = re.compile(r"(?<![\w.,])(?P<sign>)(?P<number>\d[\d,]*)(?P<half>)(?P<percent>)$")
_LINK = re.compile(r"\]\((?:docs/results/)?([\w-]+)\.md(?:#[\w-]*)?\)")
_SENTENCE = re.compile(r"(?<=[.!?])[*)\"]*\s+(?=[^\Wa-z\d_]|[*\[(\"`])")
_CLAUSE = re.compile(r"[,;:]\s|\band\b")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")
NOT_RESULTS = ("95 %",)  # the level of intervals
CHANCE = re.compile(r"p\b")  # how heads of columns with p-values begin
WHOLE = re.compile(r"seeds|(.*: )?steps|maximum at")  # heads of columns with whole numbers


@dataclass(frozen=True, slots=True)
class Written:
    """A number as it stands on a page."""

    line: int
    text: str
    value: float
    unit: float  # of its last digit
    half: str = ""
    percent: bool = False
    study: str = ""
    who: Texts = ()  # the method it is about, or the two of a difference
    column: str = ""  # the head of its column; of p-values in sentences "p" or "p (holm)"
    first: str = ""  # the head of the first column
    cells: Texts = ()  # its row
    near: Texts = ()  # column, columns to the left and row; or part, sentence and paragraph
    above: Texts = ()  # sentences above a table, the nearest first
    headings: Texts = ()  # the nearest first
    bound: int = 0  # 1 and 2: the lower and the upper end of "(low to high)"
    beside: Written | None = None  # for a p-value: the difference it belongs to

    @property
    def in_table(self) -> bool:
        return bool(self.cells)

    @property
    def signed(self) -> bool:
        return self.text[0] in "+−-"


@dataclass
class Block:
    """Lines that belong together: a heading, a table or a paragraph."""

    kind: str
    line: int
    start: int
    lines: list[str] = field(default_factory=list)
    section: int = 0
    headings: Texts = ()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Page:
    """A page's text, cut into blocks; `methods` are those of every study, `own` the study
    whose page it is."""

    def __init__(self, text: str, methods: Mapping[str, Collection[str]], own: str = ""):
        self.raw, self.own, self.methods = text, own, methods
        self.plain = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        self.blocks = list(_blocks(self.plain, text))
        names = {name for each in methods.values() for name in each}
        words = sorted((re.escape(name).replace(r"\ ", r"\s+") for name in names), key=len)
        some = "|".join(reversed(words)) or r"(?!)"
        self.pair = re.compile(rf"(?<!\w)({some})\s+(?:−|minus)\s+({some})(?!\w)", re.I)
        self.before = re.compile(rf"(?<!\w)({some})$")
        self.links = [
            (block.section, found.start(), found[1])
            for block in self.blocks
            if block.kind != "table"
            for found in _LINK.finditer(text, block.start, block.start + len(block.text))
            if found[1] in methods
        ]

    def study(self, section: int, place: int) -> str:
        """The study linked last before a place in its section, else the first one linked after it
        there, else the last one of the page before it."""
        if self.own:
            return self.own
        here = [(at, name) for where, at, name in self.links if where == section]
        before = [name for at, name in here if at < place]
        earlier = [name for _, at, name in self.links if at < place]
        return (before[-1:] or [name for _, name in here][:1] or earlier[-1:] or [""])[0]

    def numbers(self) -> Iterator[Written]:
        above: Texts = ()
        for block in self.blocks:
            if block.kind == "heading":
                above = ()
                yield from self.paragraph(block)
            elif block.kind == "table":
                yield from self.table(block, above)
            else:
                yield from self.paragraph(block)
                above = (*reversed(_SENTENCE.split(block.text)), *above)

    def table(self, block: Block, above: Texts) -> Iterator[Written]:
        heads: list[str] = []
        place = block.start
        for number, line in enumerate(block.lines, block.line):
            raw = self.raw[place : place + len(line)]
            place += len(line) + 1
            plain, cells = _cells(line), tuple(_cells(raw))
            if not heads:
                heads = [head.replace("`", "") for head in cells]
                at = place - len(line) - 1
                yield from self.paragraph(replace(block, line=number, start=at, lines=[line]))
                continue
            linked = [name for name in _LINK.findall(raw) if name in self.methods]
            study = (linked or [self.study(block.section, block.start)])[0]
            names = self.methods.get(study, ())
            beside = None
            for at, cell in enumerate(plain):
                left = heads[at::-1] if at < len(heads) else [""]
                who = _methods(cells, left, names)
                whole = WHOLE.fullmatch(left[0].lower()) and _WHOLE.match(cell)
                for found in [whole] if whole else _FOUND.finditer(cell):
                    written = replace(
                        _written(found, number),
                        study=study,
                        who=who,
                        column=left[0].lower() or "-",
                        first=heads[0].lower(),
                        cells=cells,
                        near=(*left, " ".join(cells)),
                        above=above,
                        headings=block.headings,
                        beside=beside,
                    )
                    if written.text in NOT_RESULTS:
                        continue
                    if written.half or written.signed:
                        beside = replace(written, beside=None)
                    yield written

    def paragraph(self, block: Block) -> Iterator[Written]:
        text = block.text
        pairs = list(self.pair.finditer(text))
        free = 0  # from where on a pair is meant
        beside: tuple[int, Written] | None = None  # the last difference, and where it is
        for found in _FOUND.finditer(text):
            if found[0].strip() in NOT_RESULTS:
                continue
            before = text[: found.start()].rstrip()
            column = _chance(before, text[found.end() :])
            meant = [pair for pair in pairs if free <= pair.end() <= found.start()]
            who: Texts = tuple(_plain(m) for m in meant[-1].groups()) if meant else ()
            if meant and beside and beside[0] < meant[-1].start():
                beside = None
            written = _written(found, block.line + text.count("\n", 0, found.start()))
            single = self.before.search(before)
            if single and not (meant and meant[-1].end() == len(before)):
                who, free, beside = (_plain(single[1]),), found.start(), None
            elif not (written.half or written.signed or column):
                who = ()  # a pair has differences and p-values
            written = replace(
                written,
                study=self.study(block.section, block.start + found.start()),
                who=who,
                column=column,
                near=_around(text, found.start()),
                headings=block.headings,
                beside=beside[1] if beside and column else None,
            )
            if not column and (written.half or written.signed):
                beside = (found.start(), written)
            yield written


def named(label: str, names: Collection[str]) -> Texts:
    """The methods that a cell names, in lower case: one, or the two of a difference."""
    parts = [re.sub(r"[,:]", "", _plain(part)) for part in re.split(r" − | minus ", label)]
    found, small = [], [name.lower() for name in names]
    for part in parts:
        there = [name for name in small if part == name or part.startswith(f"{name} ")]
        found += [max(there, key=len)] if there else []
    return tuple(found) if len(found) == len(parts) <= 2 else ()


def _methods(cells: Texts, heads: list[str], names: Collection[str]) -> Texts:
    """Whom a cell is about: the pair in its row or in its column's head, where "it" is the row's
    method, for a p-value also in heads to the left; else the row's first cell."""
    heads = heads if CHANCE.match(heads[0].lower()) else heads[:1]
    texts = [*cells, *(re.sub(r"\bit$", lambda _: cells[0], head) for head in heads)]
    found = (named(text, names) for text in texts)
    return next((pair for pair in found if len(pair) == 2), named(cells[0], names))


def _plain(words: str) -> str:
    return re.sub(r"\s+", " ", words).strip(" *`").lower()


def _cells(line: str) -> list[str]:
    return [cell.strip(" *`") for cell in line.strip().strip("|").split("|")]


def _blocks(plain: str, raw: str) -> Iterator[Block]:
    """The blocks of a page; a list's items are paragraphs."""
    block, start, section, stack = None, 0, 0, dict[int, str]()
    heads = raw.split("\n")  # with their code
    for number, line in enumerate(plain.split("\n"), 1):
        kind = "table" if line.lstrip().startswith("|") else "text"
        if line.startswith("#"):
            kind, section = "heading", section + 1
            level = len(line) - len(line.lstrip("#"))
            stack = {k: v for k, v in stack.items() if k < level} | {level: heads[number - 1]}
        ends = not line.strip() or kind == "heading" or _ITEM.match(line)
        if block and (ends or kind != block.kind):
            yield block
            block = None
        if line.strip():
            above = tuple(stack[level] for level in sorted(stack, reverse=True))
            block = block or Block(kind, number, start, [], section, above)
            block.lines.append(line)
        start += len(line) + 1
    if block:
        yield block


def _written(found: re.Match[str], line: int) -> Written:
    digits, _, exponent = found["number"].replace(",", "").partition("e")
    scale = 10.0 ** int(exponent or 0)
    value = float(digits) * scale * (-1 if found["sign"] in ("−", "-") else 1)
    unit = 10.0 ** -len(digits.partition(".")[2]) * scale
    share = bool(found["percent"]) or found.string[found.end() :].startswith(" %")
    before, after = found.string[: found.start()], found.string[found.end() :]
    low = before.endswith("(") and after.startswith(" to ")
    bound = 1 if low else 2 * (before.endswith(" to ") and "(" in before)
    return Written(line, found[0].strip(), value, unit, found["half"] or "", share, bound=bound)


def _chance(before: str, after: str) -> str:
    """Which p-value a number in a sentence is: "p", "p (holm)" (once "after Holm" was said, until
    the end of the paragraph), or none."""
    if re.search(r"\bcorrected$", before):
        return "p (holm)"
    if not re.search(r"(?<!\w)(p|uncorrected)(?: [=<]| of| is)?$", before):
        return ""
    if before.endswith("uncorrected") or re.match(r",\s+corrected", after):
        return "p"
    said = re.match(r"\s+after\s+Holm", after) or re.search(r"after\s+Holm", before)
    return "p (holm)" if said else "p"


def _around(text: str, place: int) -> Texts:
    """The part of a sentence that a place is in, the sentence, and the paragraph."""
    start, end = _bounds(_SENTENCE, text, place)
    sentence = text[start:end]
    first, last = _bounds(_CLAUSE, sentence, place - start)
    return (sentence[first:last], sentence, text)


def _bounds(cut: re.Pattern[str], text: str, place: int) -> tuple[int, int]:
    cuts = [(found.start(), found.end()) for found in cut.finditer(text)]
    start = max((end for _, end in cuts if end <= place), default=0)
    return start, min((begin for begin, _ in cuts if begin > place), default=len(text))
