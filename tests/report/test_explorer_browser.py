"""The explorer in a real browser: what is shown, where nodes are after a drag, no request, no error, contrast."""

import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from explored import small_codes

from ghrq import ball
from ghrq.report.explorer_page import ItemTexts, explorer_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (390, 820, 1440)

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: the explorer is not tested in a browser"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """one.html, with labels that try everything, and two.html, with two tokenizers."""
    folder = tmp_path_factory.mktemp("pages")
    labels = [f"thing {row}" for row in range(400)]
    labels[0] = "dog"
    labels[1] = "<img src=x onerror=\"document.title='broken'\"> cat"
    labels[2] = "</script><script>document.title='broken'</script> fox"
    labels[3] = "\u202eesrever\u202c \u200bwolf"
    labels[4] = "long " + "word" * 3000
    labels[5] = "عربى כלב horse"
    colours = ["animal" if row < 6 else f"<b>{row % 4}</b>" for row in range(400)]
    texts = ItemTexts(labels, [f"id-{row}" for row in range(400)], "id", colours, "kind")
    one, two = small_codes(), small_codes("euclidean", name="<i>flat</i>")
    for name, explored in (("one", [one]), ("two", [one, two])):
        html = explorer_page(explored, np.arange(400), texts, "Codes of things")
        (folder / f"{name}.html").write_text(html, "utf-8")
    return folder


@pytest.fixture
def opened(browser, pages):
    """``page = opened("one", width=390)``; at the end there was no error and no request but for the file."""
    contexts, problems = [], []

    def open_page(name="one", width=1440, height=900, hash="", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if is_own(request.url) else problems.append(request.url))
        page.goto(f"{(pages / f'{name}.html').as_uri()}{hash}")
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


def is_own(url):
    return url.startswith("file:") or url == "data:,"


def settle(page):
    """Until what was asked for has been drawn: a change of the address, then two frames."""
    page.evaluate(
        """async () => {
          await new Promise((done) => setTimeout(done, 30));
          for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
        }"""
    )


def until(page, condition):
    """Playwright's own way to wait evaluates a text, which the policy of the page forbids."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"it never happened: {condition}")


def selected(page, side=0):
    return page.evaluate(f"explorer.panes[{side}].tree.codes(explorer.panes[{side}].look.selected)")


def text(page, selector):
    return page.inner_text(selector)


def place(page, node, side=0):
    """A node on the page, in pixels, and on the disk."""
    return page.evaluate(
        """([side, node]) => {
          const pane = explorer.panes[side], box = pane.canvas.getBoundingClientRect(), { scene, look } = pane;
          const slot = scene.node.subarray(0, scene.count).indexOf(node), x = scene.x[slot], y = scene.y[slot];
          const px = box.left + look.width / 2 + look.radius * x, py = box.top + look.height / 2 - look.radius * y;
          return { slot, x, y, px, py, r: look.radius, cx: box.left + look.width / 2, cy: box.top + look.height / 2 };
        }""",
        [side, node],
    )


def painted(page, side=0):
    """How many pixels of a canvas are not empty."""
    return page.evaluate(
        """(side) => {
          const { canvas } = explorer.panes[side];
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          let count = 0;
          for (let i = 3; i < data.length; i += 4) count += data[i] > 40;
          return count;
        }""",
        side,
    )


def test_it_opens_at_the_root(opened):
    page = opened()
    assert text(page, "h1") == "Codes of things"
    assert text(page, "#told").startswith("400 items. The first code parts them into 8 branches.")
    assert text(page, "#crumbs") == "root"
    assert text(page, "#items-title").lower() == "items (400)"
    assert page.locator("#items li").count() == 60
    page.click("#more")
    assert page.locator("#items li").count() == 120
    assert painted(page) > 5000


def test_a_drag_moves_every_node_as_the_ball_says(opened):
    page = opened()
    nodes = page.evaluate("Array.from(explorer.panes[0].scene.node.slice(0, explorer.panes[0].scene.count))")
    before = {node: place(page, node) for node in nodes[:40]}
    start = before[nodes[0]]
    # Whole pixels: the browser rounds others.
    ways = [(round(start["cx"]) + dx, round(start["cy"]) + dy) for dx, dy in ((120, -85), (40, -190), (-160, -50))]
    page.mouse.move(*ways[0])
    page.mouse.down()
    for way in ways[1:]:
        page.mouse.move(*way, steps=2)
    page.mouse.up()
    settle(page)
    a, b = (
        torch.tensor([(x - start["cx"]) / start["r"], (start["cy"] - y) / start["r"]], dtype=torch.float64)
        for x, y in (ways[0], ways[-1])
    )
    shift = ball.mobius_add(b, -ball.gyration(b, a, a))  # b ⊟ a: the translation that takes a to b
    moved = 0
    for node, old in before.items():
        new = place(page, node)
        if new["slot"] < 0 or math.hypot(old["x"], old["y"]) > 0.999:
            continue
        wanted = ball.mobius_add(shift, torch.tensor([old["x"], old["y"]], dtype=torch.float64)).tolist()
        assert math.hypot(new["x"] - wanted[0], new["y"] - wanted[1]) < 1e-9
        moved += 1
    assert moved > 15
    assert text(page, "#crumbs") == "root"  # a drag selects nothing


def test_scrolling_goes_deeper_and_back_to_the_root(opened):
    page = opened()
    node = page.evaluate("explorer.panes[0].tree.largestChild(0)")
    before = place(page, node)
    page.mouse.move(before["px"], before["py"])
    page.mouse.wheel(0, -200)
    settle(page)
    after = place(page, node)
    assert math.hypot(after["x"], after["y"]) < math.hypot(before["x"], before["y"]) - 0.05
    for _ in range(12):
        page.mouse.wheel(0, 240)
    settle(page)
    root = place(page, 0)
    assert math.hypot(root["x"], root["y"]) < 1e-6


def test_a_click_shows_a_node_and_back_returns(opened):
    page = opened()
    node = page.evaluate("explorer.panes[0].tree.largestChild(0)")
    codes, count = page.evaluate(f"[explorer.panes[0].tree.codes({node}), explorer.panes[0].tree.count[{node}]]")
    at = place(page, node)
    page.mouse.click(at["px"], at["py"])
    until(page, "location.hash !== ''")
    settle(page)
    assert selected(page) == codes
    assert page.url.endswith(f"#a.{codes[0]}")
    assert text(page, "#told").startswith(f"{count} items with this first code.")
    assert text(page, "#items-title").lower() == f"items ({count})"
    assert page.locator("#relatives li").count() == 6
    here = place(page, node)
    assert math.hypot(here["x"], here["y"]) < 1e-9
    page.click("#relatives li:first-child button")
    settle(page)
    assert selected(page) != codes
    page.click("#back")
    until(page, f"location.hash === '#a.{codes[0]}'")
    settle(page)
    assert selected(page) == codes
    page.go_back()
    until(page, "location.hash === ''")
    settle(page)
    assert selected(page) == []


def test_search_flies_to_an_item(opened):
    page = opened()
    page.keyboard.press("/")
    page.keyboard.type("dog")
    assert page.locator("#hits li").count() == 1
    page.keyboard.press("Enter")
    settle(page)
    assert text(page, "#what") == "dog"
    assert "id: id-0." in text(page, "#told")
    codes = selected(page)
    assert len(codes) == 3
    assert text(page, "#crumbs").split() == ["root", *map(str, codes)]
    assert page.locator("#way li").count() == 3
    assert page.get_attribute("#items [aria-current]", "class") == "row item"
    leaf = page.evaluate("explorer.panes[0].look.selected")
    at = place(page, leaf)
    assert at["slot"] >= 0
    assert math.hypot(at["x"], at["y"]) == pytest.approx(math.tanh(1.3 / 2), abs=1e-6)
    assert "dog; codes" in text(page, "#said")
    page.fill("#search", "nothing like it")
    assert page.locator("#hits li").count() == 0
    assert text(page, "#found") == "0 items found"


def test_keys_walk_through_the_tree(opened):
    page = opened()
    page.focus("#disk-0")
    steps = [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowRight", 2), ("ArrowLeft", 2), ("ArrowUp", 1), ("Home", 0)]
    for key, depth in steps:
        page.keyboard.press(key)
        settle(page)
        assert len(selected(page)) == depth


def test_touch(opened):
    page = opened(width=390, height=800, has_touch=True)
    node = page.evaluate("explorer.panes[0].tree.largestChild(0)")
    at = place(page, node)
    page.touchscreen.tap(at["px"], at["py"])
    until(page, "location.hash !== ''")
    settle(page)
    assert len(selected(page)) == 1


def test_labels_are_text_whatever_is_in_them(opened):
    page = opened()
    for wanted, start in (("cat", "<img src=x"), ("fox", "</script>"), ("wolf", "esrever wolf"), ("horse", "عربى")):
        page.fill("#search", wanted)
        page.press("#search", "Enter")
        settle(page)
        assert text(page, "#what").startswith(start)
    page.fill("#search", "long word")
    page.press("#search", "Enter")
    settle(page)
    assert len(text(page, "#what")) == 200
    assert page.locator("#what").bounding_box()["height"] < 400
    assert page.title() == "Codes of things"
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("name", ["one", "two"])
def test_nothing_is_wider_than_the_screen(opened, name):
    page = opened(name, hash="#a.0")
    page.fill("#search", "long")
    page.press("#search", "Enter")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        disk = page.locator("#disk-0").bounding_box()
        assert min(disk["width"], disk["height"]) > 250


def test_true_radii(opened):
    page = opened()
    page.select_option("#radius", "true")
    settle(page)
    found = page.evaluate(
        """() => {
          const { scene, tree } = explorer.panes[0], rows = [];
          for (let slot = 0; slot < scene.count; slot++) {
            rows.push([Math.hypot(scene.x[slot], scene.y[slot]), tree.distance[scene.node[slot]]]);
          }
          return rows;
        }"""
    )
    assert len(found) > 50
    for radius, distance in found:
        assert radius == pytest.approx(math.tanh(distance / 2), abs=1e-9)


def test_colours_by_label_and_by_branch(opened):
    page = opened()
    assert page.locator("#legend li").count() == 5
    assert "<b>1</b>" in text(page, "#legend")
    page.select_option("#colour", "branches")
    assert not page.locator("#legend").is_visible()


def test_two_tokenizers_move_and_search_together(opened):
    page = opened("two")
    assert painted(page, 0) > 3000
    assert painted(page, 1) > 3000
    assert "<i>flat</i>" in text(page, "#panes")
    page.fill("#search", "dog")
    page.press("#search", "Enter")
    settle(page)
    dog = page.evaluate("explorer.labels.indexOf('dog')")
    for side in (0, 1):
        codes = page.evaluate(f"explorer.panes[{side}].tree.codes(explorer.panes[{side}].tree.leafOf[{dog}])")
        assert selected(page, side) == codes
        assert text(page, f"#where-{side}") == " · ".join(map(str, codes))
    before = [place(page, 0, side) for side in (0, 1)]
    x, y = before[0]["cx"], before[0]["cy"]
    page.mouse.move(x + 40, y)
    page.mouse.down()
    page.mouse.move(x - 60, y + 30, steps=4)
    page.mouse.up()
    settle(page)
    after = [place(page, 0, side) for side in (0, 1)]
    assert all((a["x"], a["y"]) != (b["x"], b["y"]) for a, b in zip(after, before, strict=True))
    page.uncheck("#linked")
    still = page.evaluate("explorer.panes[1].view.state")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y, steps=4)
    page.mouse.up()
    assert page.evaluate("explorer.panes[1].view.state") == still


def test_an_address_that_leads_nowhere_shows_the_root(opened):
    for hash in ("#a.99.1", "#zzz", "#a.0!999999", "#%E0%A4%A"):
        assert opened(hash=hash).inner_text("#told")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_names_by_axe(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened("two", hash="#a.0", color_scheme=scheme)
    page.fill("#search", "thing")
    found = axe.Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_can_be_chosen(opened, scheme):
    page = opened(color_scheme=scheme)
    ink = "getComputedStyle(document.body).color"
    before = page.evaluate(ink)
    page.click("#theme")
    assert page.evaluate(ink) != before
    page.click("#theme")
    assert page.evaluate(ink) == before


def test_high_contrast(opened):
    page = opened(contrast="more")
    assert page.evaluate("getComputedStyle(document.querySelector('.subtitle')).color") == page.evaluate(
        "getComputedStyle(document.body).color"
    )
    forced = opened(forced_colors="active")
    assert painted(forced) > 5000


def test_screenshots_are_kept(opened, tmp_path):
    """As artefacts, where EXPLORER_SCREENSHOTS names a folder."""
    folder = Path(os.environ.get("EXPLORER_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        opened(color_scheme=scheme, hash="#a.0").screenshot(path=folder / f"explorer-{scheme}.png")
        assert re.match(rb"\x89PNG", (folder / f"explorer-{scheme}.png").read_bytes())
