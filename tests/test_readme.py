"""The examples of the README run as they stand."""

import re
import tomllib
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_are_four():
    assert len(EXAMPLES) == 4


PAGES = ("coming-from-vq", "start/first-quantizer", "hyperbolic", "scaling-out", "api/index")
DOCUMENTS = [README.parent / "docs" / f"{name}.md" for name in PAGES]
FURTHER = [text for path in DOCUMENTS for text in re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES + FURTHER)
def test_an_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})


def test_links_work_on_a_package_index():
    """It shows the README without the other files: only whole addresses and places in the README itself work there.

    A picture is an exception: there its text is shown instead, which says as much.
    """
    text = re.sub(r"```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    pictures = re.findall(r"!\[(.{20,})\]\((docs/[\w./-]+)\)", text)
    assert all((README.parent / file).is_file() for _, file in pictures)
    text = re.sub(r"!\[.{20,}\]\(docs/[\w./-]+\)", "", text)
    targets = re.findall(r"\]\(([^)]*)\)", text) + re.findall(r"(?:src|href)=[\"']([^\"']*)", text)
    headings = {f"#{title.lower().replace(' ', '-')}" for title in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)}
    assert [target for target in targets if target not in headings and not target.startswith("https://")] == []


def test_files_that_the_readme_names_exist_and_are_in_the_source_distribution():
    root, text = README.parent, README.read_text("utf-8")
    named = set(re.findall(r"`((?:docs/(?:results/)?)?[\w-]+\.(?:md|cff))`", text))
    assert {"docs/semantic-ids.md", "CITATION.cff"} <= named
    included = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    for name in named:
        assert (root / name).is_file()
        assert name.partition("/")[0] in included["include"]


def test_links_between_documents_lead_somewhere():
    """Pages of examples are made when the site is built, which then checks links to them."""
    examples = README.parent / "docs" / "examples"
    for path in (README.parent / "docs").rglob("*.md"):
        text = path.read_text("utf-8")
        targets = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"src=\"([^\"]*)", text)
        files = [(path.parent / target).resolve() for target in targets if not target.startswith("https://")]
        assert [file for file in files if not file.exists() and file.parent != examples] == []


def test_the_paper_is_named_and_cited():
    title = "Geometry-Aware Hyperbolic Residual-Quantized Variational Autoencoders"
    authors = ["Alessio Colombo", "Melika Ayoughi"]
    root, named = README.parent, ("index", "semantic-ids", "wordnet", "images", "results/wordnet")
    for path in (README, *(root / "docs" / f"{name}.md" for name in named)):
        text = re.sub(r"[\s>]+", " ", path.read_text("utf-8"))
        assert all(words in text for words in (title, *authors)), path.name
    cited = pytest.importorskip("yaml").safe_load((root / "CITATION.cff").read_text("utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)
    paper = cited["preferred-citation"]
    assert paper["title"] == title
    assert [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]] == authors
