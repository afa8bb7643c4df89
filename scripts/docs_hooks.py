"""Hooks of the documentation site: figures, the roles of docstrings, and the reference of commands.

- An SVG of ``docs/figures`` is put into the page itself, so that its colours follow light and dark: figures are drawn
  with ``currentColor`` and with the theme's variables, those of ``ghrq figure`` with colours that become variables.
- ``:class:`ghrq.ids.Catalogue``` in a docstring becomes a link, or the name alone where there is nothing to link to.
- ``{{ commands }}`` in a page becomes the help of every command.
"""

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<img alt="([^"]*)" src="[^"]*?figures/([\w-]+)\.svg"\s*/?>')
# Pixels: wider drawings scroll inside themselves on a phone, where their letters would be too small otherwise.
_WIDE = 640

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):<code>~?([^<]+)</code>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help of all commands where it is asked for."""
    return markdown.replace("{{ commands }}", _commands()) if "{{ commands }}" in markdown else markdown


def _commands() -> str:
    import typer

    from ghrq.cli import app

    def described(command: Any, names: list[str]) -> str:
        context = typer.Context(command, info_name=" ".join(names), terminal_width=100, max_content_width=100)
        if hasattr(command, "commands"):
            return "".join(described(each, [*names, name]) for name, each in sorted(command.commands.items()))
        return f"## {' '.join(names)}\n\n```text\n{command.get_help(context).rstrip()}\n```\n\n"

    return described(typer.main.get_command(app), ["ghrq"])


def on_page_content(html: str, config: Any, **_: Any) -> str:
    """Replace images of ``figures/NAME.svg`` by the drawing."""
    from ghrq.report.figures import inline

    folder = Path(config.docs_dir) / "figures"

    def drawing(found: re.Match[str]) -> str:
        svg = inline((folder / f"{found[2]}.svg").read_text("utf-8"), found[2])
        drawn = svg.replace("<svg ", f'<svg role="img" aria-label="{found[1]}" class="figure" data-search-exclude ', 1)
        return f'<span class="drawing" tabindex="0">{drawn}</span>' if _width(svg) > _WIDE else drawn

    def link(found: re.Match[str]) -> str:
        name = found[1].rpartition(".")[2] if found[1].startswith("ghrq.") else found[1]
        return f'<autoref identifier="{found[1]}" optional><code>{name}</code></autoref>'

    return _ROLE.sub(link, _IMAGE.sub(drawing, html))


def _width(svg: str) -> float:
    """In pixels; matplotlib counts in points of 4/3 pixels."""
    found = re.search(r'<svg[^>]*? width="([\d.]+)(pt)?"', svg)
    return 0.0 if found is None else float(found[1]) * (4 / 3 if found[2] else 1)
