"""Hooks of the documentation site: figures become part of the page, and the reference of commands is written.

An SVG of ``docs/figures`` is put into the page itself, so that its colours follow light and dark: figures are drawn with
``currentColor`` and with the theme's variables.
"""

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<img alt="([^"]*)" src="[^"]*?figures/([\w-]+)\.svg"\s*/?>')


def on_page_content(html: str, config: Any, **_: Any) -> str:
    """Replace images of ``figures/NAME.svg`` by the drawing."""
    folder = Path(config.docs_dir) / "figures"

    def drawing(found: re.Match[str]) -> str:
        svg = (folder / f"{found[2]}.svg").read_text("utf-8")
        return svg.replace("<svg ", f'<svg role="img" aria-label="{found[1]}" class="figure" ', 1)

    return _IMAGE.sub(drawing, html)
