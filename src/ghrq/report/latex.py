"""Tables as LaTeX, for a paper: booktabs, and nothing but ASCII, so that every engine takes it."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from textwrap import wrap

from ghrq.report.grid import Grid
from ghrq.report.results import NOTHING

PACKAGES = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}; put it into a document with \\input."

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}
_LETTERS = {
    "\u00a0": "~", "\u2060": "{}", "±": r"$\pm$",
    "×": r"$\times$", "²": r"$^2$", "⊕": r"$\oplus$", "√": r"$\surd$", "−": "$-$",
    "–": "--", "—": "---", "…": r"\ldots{}", "‖": r"$\|$", "α": r"$\alpha$", "β": r"$\beta$", "λ": r"$\lambda$",
    "₁": r"$_1$", "₂": r"$_2$", "→": r"$\rightarrow$", "“": "``", "”": "''", "’": "'", "‘": "`", "≥": r"$\ge$",
    "≤": r"$\le$", "✓": r"$\surd$", "✗": r"$\times$", "·": r"$\cdot$", "ß": r"{\ss}", "ø": r"{\o}", "é": r"\'{e}",
}  # fmt: skip
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v ", "\u0327": "c "}


# Longer headings are broken into lines of this many characters; a table is cut after this many rows, as a float has to
# fit on a page with its caption.
_HEADING, _ROWS = 10, 32
_NUMBER = re.compile(r"-?[\d.,]+(e[+-]?\d+)?(\s±\s[\d.,]+(e[+-]?\d+)?)?|inf|nan")


def table(grid: Grid) -> str:
    """A ``table`` with its caption, several where it is longer than a page; shrunk where it is wider than the text."""
    heading, *lines = grid.lines("**")
    parts = list(_parts(lines))
    first = f"{inline(grid.title)}. {inline(grid.note)}".strip()
    later = [f"{inline(grid.title)}, part {i} of {len(parts)}." for i in range(2, len(parts) + 1)]
    align = "l" + "".join("r" if all(map(_is_number, column)) else "l" for column in list(zip(*lines, strict=True))[1:])
    return "\n".join(
        _float(caption, align, heading, part) for caption, part in zip([first, *later], parts, strict=True)
    )


def _parts(lines: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    """Rows for one float each; one that begins inside a block begins with its title."""
    part: list[list[str]] = []
    block = None
    for line in lines:
        if len(part) >= _ROWS:
            yield part
            part = [block] if block and not _is_block(line) else []
        block = line if _is_block(line) else block
        part.append(line)
    yield part


def _is_block(line: Sequence[str]) -> bool:
    return len(line) > 1 and not any(line[1:])


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, or empty."""
    return cell in ("", NOTHING) or _NUMBER.fullmatch(cell.strip("*")) is not None


def _float(caption: str, align: str, heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    titles = [_heading(title, side) for title, side in zip(heading, align, strict=True)]
    body = [" & ".join(titles) + r" \\", r"\midrule"]
    for line in lines:
        if not _is_block(line):
            body.append(" & ".join(map(_cell, line)) + r" \\")
            continue
        body += [] if body[-1] == r"\midrule" else [r"\addlinespace"]
        body.append(rf"\multicolumn{{{len(line)}}}{{l}}{{{inline(line[0])}}} \\")
    parts = [
        r"\begin{table}",
        r"\centering",
        r"\setlength{\belowcaptionskip}{6pt}",
        rf"\caption{{{caption}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def inline(markdown: str) -> str:
    """A line of Markdown as LaTeX: bold, emphasis and code; all else is text."""
    parts = re.split(r"(`[^`]*`|\*\*.+?\*\*|\*[^*]+\*)", markdown)
    return "".join(_styled(part) for part in parts)


def _heading(title: str, side: str) -> str:
    """A heading, broken into lines that end or begin below each other."""
    lines = [_cell(line) for line in wrap(title, _HEADING, break_long_words=False, break_on_hyphens=False)]
    broken = r" \\ ".join(rf"\strut {line}" for line in lines)  # a strut: all lines are as high
    return rf"\shortstack[{side}]{{{broken}}}" if len(lines) > 1 else "".join(lines)


def _cell(text: str) -> str:
    """An entry. The minus of a number is longer than a hyphen; ``[`` or ``*`` would be an option of the row before."""
    latex = inline(re.sub(r"^(\**)-", r"\1−", text) if _is_number(text) else text)
    return "{}" + latex if latex.startswith(("[", "*")) else latex


def _styled(part: str) -> str:
    for mark, command in (("`", "texttt"), ("**", "textbf"), ("*", "emph")):
        if len(part) > 2 * len(mark) and part.startswith(mark) and part.endswith(mark):
            inside = part[len(mark) : -len(mark)]
            return rf"\{command}{{{_text(inside) if mark == '`' else inline(inside)}}}"
    return _text(part)


def _text(text: str) -> str:
    # Two hyphens would become a dash: something goes between them.
    return "".join(map(_letter, re.sub("-(?=-)", "-\u2060", text)))


def _letter(character: str) -> str:
    if character in _SPECIAL or character in _LETTERS:
        return _SPECIAL.get(character) or _LETTERS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    base, *marks = list(unicodedata.normalize("NFD", character))
    if base.isascii() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(character):04X}]"
