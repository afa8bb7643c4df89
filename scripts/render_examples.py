"""Run the scripts of ``examples/`` and write each as a page with what it prints and draws.

python scripts/render_examples.py [NAME ...] [--out docs/examples]

A script is cut at its ``# %%`` lines: ``# %% [markdown]`` begins text, ``# %%`` code. All run in this process, one
after the other, so that torch is imported once; each has names of its own and starts in a folder of its own.
"""

import argparse
import contextlib
import io
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]


def cells(script: str) -> Iterator[tuple[bool, int, str]]:
    """The cells of a script: whether it is text, the lines before it, and the text or the code."""
    first, *parts = re.split(r"^# %%", script, flags=re.MULTILINE)
    line = first.count("\n")
    for part in parts:
        head, _, body = part.partition("\n")
        is_text = "[markdown]" in head
        yield is_text, line + 1, re.sub(r"^# ?", "", body, flags=re.MULTILINE) if is_text else body
        line += part.count("\n")


def run(code: str, names: dict[str, Any], script: Path, line: int) -> str:
    """Run the code of a cell; what it printed. An error names script and line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, script, "exec"), names)
    return printed.getvalue()


def render(script: Path, out: Path) -> None:
    """Write ``out/NAME.md`` and the figures of ``script`` beside it."""
    page, names = [], {"__name__": "__main__"}
    plt.close("all")
    for earlier in out.glob(f"{script.stem}-*.png"):
        earlier.unlink()
    for is_text, line, body in cells(script.read_text("utf-8")):
        if is_text:
            page.append(body.strip("\n"))
            continue
        page.append(f"```python\n{re.sub(r'  # noqa.*', '', body).strip()}\n```")
        printed = run(body, names, script, line)
        if printed.strip():
            page.append(f"```{{.text .output}}\n{printed.rstrip()}\n```")
        for place in plt.get_fignums():
            file = out / f"{script.stem}-{line}-{place}.png"
            plt.figure(place).savefig(file, dpi=110, bbox_inches="tight", facecolor="white")
            page.append(f"![A figure that the code above draws]({file.name}){{.figure}}")
        plt.close("all")
    page.append(f"*This page is `examples/{script.name}`, run when the site was built.*")
    (out / f"{script.stem}.md").write_text("\n\n".join(page) + "\n", "utf-8")


def main() -> None:
    """Render the examples that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="names of scripts, such as product_ids; by default all")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "examples")
    given = parser.parse_args()
    scripts = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
    unknown = [name for name in given.names if name not in scripts]
    if unknown:
        parser.error(f"no example {unknown[0]!r}: there are {', '.join(scripts)}")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["GHRQ_EXAMPLES_OUT"] = str(out)
    for name in given.names or scripts:
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            render(scripts[name], out)
        print(f"{name}: {time.process_time() - start:.1f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
