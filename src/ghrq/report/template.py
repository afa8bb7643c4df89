"""HTML from the templates of this package."""

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


def inline_markdown(text: str) -> Any:
    """A line of Markdown as HTML: bold, emphasis and code. HTML, links and images are left as text."""
    return safe(_markdown().renderInline(text))


@cache
def _markdown() -> Any:
    markdown = require("markdown_it", "train").MarkdownIt("zero", {"html": False})
    return markdown.enable(["emphasis", "backticks", "escape"])


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
    environment.filters["markdown"] = inline_markdown
    return environment
