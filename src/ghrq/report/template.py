"""HTML from the templates of this package."""

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

from ghrq.system.errors import require

_FOLDER = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Fill in ``templates/<template>.html``; text is escaped, what :func:`safe` marks is not."""
    text: str = _environment().get_template(f"{template}.html").render(**values)
    return text


def safe(text: str) -> Any:
    """Mark ``text`` as HTML already."""
    return require("markupsafe", "train").Markup(text)


def rich(text: str) -> Any:
    """A line of Markdown as HTML: ``**bold**``, ``*emphasis*`` and ```code```, all else as it is."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped)
    escaped = re.sub(r"\*(.+?)\*", r"<em>\1</em>", escaped)
    return safe(re.sub(r"`(.+?)`", r"<code>\1</code>", escaped))


@cache
def _environment() -> Any:
    jinja2 = require("jinja2", "train")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["rich"] = rich
    return environment
