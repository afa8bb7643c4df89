"""The documentation site, as ``make docs`` builds it: strictly, with its examples, and in a real browser."""

import functools
import http.server
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from test_reference import MODULES

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MAIN = ("index", "start/first-ids", "semantic-ids", "concepts/ball", "results/compression", "examples/digits_vqvae")
MAIN += ("api/optim", "api/commands")  # as the larger pages of the reference, but axe takes seconds for those
NO_INDEX = 'var __index = {"config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {}}, "docs": []}'

pytest.importorskip("material", reason="mkdocs-material is not installed: the site is not built")
pytestmark = pytest.mark.slow
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: the site is not looked at")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Everything is written to a copy."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    for path in (folder / "docs" / "examples").iterdir():
        if path.name != "index.md":  # of an earlier build
            path.unlink()
    for name in ("mkdocs.yml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    (folder / "src").symlink_to(ROOT / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    for command in (["scripts/render_examples.py"], ["-m", "mkdocs", "build", "--strict", "--quiet"]):
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_public_name_is_in_the_reference(site):
    text = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    places = set(re.findall(r'id="(ghrq[\w.]*)"', text))
    names = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    assert len(names) > 80
    assert names - places == set()


def test_the_quantizer_shows_its_methods_wherever_they_are_written(site):
    text = (site / "api" / "quantizer.html").read_text("utf-8")
    for name in ("forward", "initialize", "encode", "decode", "prefixes", "diagnose", "from_pretrained"):
        assert f'id="ghrq.quantizer.ResidualQuantizer.{name}"' in text, name


def test_examples_show_what_they_print_and_draw(site):
    for script in (ROOT / "examples").glob("*.py"):
        html = (site / "examples" / f"{script.stem}.html").read_text("utf-8")
        assert 'class="output highlight"' in html, script.stem
        assert ('class="figure"' in html) == ("plt." in script.read_text("utf-8")), script.stem
    assert (site / "examples" / "mammals.html").stat().st_size > 50_000


def test_figures_are_in_their_pages_and_follow_the_theme(site):
    drawn = {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")} - {"mark", "favicon"}
    text = "".join(page.read_text("utf-8") for page in (site / "concepts").glob("*.html"))
    assert {"figure-1", "figure-2"} <= drawn
    assert text.count('<svg role="img" aria-label="') == len(drawn)
    assert not re.search(r"<img[^>]*figures/(?!mark|favicon)[\w-]*\.svg", text)
    assert "var(--ink)" in text
    assert "#1b1f24" not in text.lower()


def test_commands_have_their_help(site):
    text = (site / "api" / "commands.html").read_text("utf-8")
    assert all(f'id="ghrq-{name}"' in text for name in ("fit", "train", "explore", "codec-encode", "image-decode"))


def test_nothing_is_loaded_from_elsewhere(site):
    """Links may lead anywhere; what a page loads by itself may not."""
    loading = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=\"(https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        assert [found[0] for found in loading.finditer(page.read_text("utf-8"))] == [], page


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, site):
    """``page = opened("light")``; at the end there was no error, and no request but to the site itself.

    Each page of the site loads the index of the search and takes seconds to prepare it: only where it is searched.
    """
    contexts, problems = [], []

    def open_page(scheme="light", search=False):
        context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        if not search:
            page.route("**/search_index.js", lambda route: route.fulfill(body=NO_INDEX))
        page.set_default_timeout(120_000)
        page.on("console", lambda message: problems.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on("request", lambda request: None if is_own(request.url) else problems.append(request.url))
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
        return page

    def is_own(url):
        return url.startswith((site.as_uri(), "http://127.0.0.1:", "data:", "blob:", "about:"))

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture(params=["file", "server"])
def address(request, site):
    """The site as it is read: from files, and from a server."""
    if request.param == "file":
        yield site.as_uri()
        return

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@in_a_browser
def test_no_page_is_wider_than_the_screen(opened, site):
    page, wide = opened(), []
    for path in sorted(site.rglob("*.html")):
        if path.name in ("404.html", "mammals.html"):
            continue
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        for width in (390, 820, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append((path.name, width))
    assert wide == []


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened, site, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed: no test of contrast"
    )
    page, found = opened(scheme), []
    for name in MAIN:
        page.goto((site / f"{name}.html").as_uri())
        result = axe.Axe().run(page, options={"runOnly": ["color-contrast", "image-alt", "link-name", "button-name"]})
        for problem in result.response["violations"]:
            found += [(name, problem["id"], node["html"][:120]) for node in problem["nodes"]]
    assert found == []


@in_a_browser
def test_search_and_the_switch_to_dark(opened, address):
    page = opened(search=True)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{address}/index.html")
    # As a person types: the search listens to keys, and hears nothing of a value that is set.
    page.locator("input.md-search__input").press_sequentially("telescoping")
    page.wait_for_selector("a.md-search-result__link >> text=Telescoping")
    page.keyboard.press("Escape")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "default"
    page.click("label[title='To dark']")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    page.wait_for_load_state("networkidle")  # a page that is left while it loads has a request that failed
    page.goto(f"{address}/concepts/ball.html", wait_until="networkidle")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"  # it is remembered


@in_a_browser
def test_the_explorer_of_the_example_opens(opened, site):
    page = opened()
    page.goto((site / "examples" / "mammals.html").as_uri())
    page.wait_for_selector("html[data-ready]")
