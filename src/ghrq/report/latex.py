"""Tables as LaTeX, for a paper: booktabs, and nothing but ASCII, so that every engine takes it."""

import re
import unicodedata
from collections.abc import Sequence

from ghrq.report.grid import Grid

PACKAGES = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}; put it into a document with \\input."

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}
_LETTERS = {
    "\u00a0": "~", "±": r"$\pm$", "×": r"$\times$", "²": r"$^2$", "⊕": r"$\oplus$", "√": r"$\surd$", "−": "$-$",
    "–": "--", "—": "---", "…": r"\ldots{}", "‖": r"$\|$", "α": r"$\alpha$", "β": r"$\beta$", "λ": r"$\lambda$",
    "₁": r"$_1$", "₂": r"$_2$", "→": r"$\rightarrow$", "“": "``", "”": "''", "’": "'", "‘": "`", "≥": r"$\ge$",
    "≤": r"$\le$", "✓": r"$\surd$", "✗": r"$\times$", "·": r"$\cdot$", "ß": r"{\ss}", "ø": r"{\o}", "é": r"\'{e}",
}  # fmt: skip
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v ", "\u0327": "c "}


def table(grid: Grid) -> str:
    """A ``table`` with its caption; wide ones are made as narrow as the text."""
    heading, *lines = grid.lines("**")
    body = [_row(heading), r"\midrule"]
    for line in lines:
        block = line[0] if len(line) > 1 and not any(line[1:]) else ""
        if block and body[-1] != r"\midrule":
            body.append(r"\addlinespace")
        body.append(rf"\multicolumn{{{len(line)}}}{{l}}{{{inline(block)}}} \\" if block else _row(line))
    wide = len(heading) > 7
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{inline(grid.title)}. {inline(grid.note)}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}" + ("}" if wide else ""),
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def inline(markdown: str) -> str:
    """A line of Markdown as LaTeX: bold, emphasis and code; all else is text."""
    parts = re.split(r"(`[^`]*`|\*\*.+?\*\*|\*[^*]+\*)", markdown)
    return "".join(_styled(part) for part in parts)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(inline, cells)) + r" \\"


def _styled(part: str) -> str:
    for mark, command in (("`", "texttt"), ("**", "textbf"), ("*", "emph")):
        if len(part) > 2 * len(mark) and part.startswith(mark) and part.endswith(mark):
            inside = part[len(mark) : -len(mark)]
            return rf"\{command}{{{_text(inside) if mark == '`' else inline(inside)}}}"
    return _text(part)


def _text(text: str) -> str:
    return "".join(map(_letter, text))


def _letter(character: str) -> str:
    if character in _SPECIAL or character in _LETTERS:
        return _SPECIAL.get(character) or _LETTERS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    base, *marks = list(unicodedata.normalize("NFD", character))
    if base.isascii() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(character):04X}]"
