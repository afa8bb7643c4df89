"""Pages in a real browser: what every page of ghrq has to hold to."""

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (390, 820, 1440)


def is_own(url):
    return url.startswith(("file:", "data:"))


def check_page(file, screenshots=None):
    """No error, no request, nothing wider than the screen, names and contrast by axe, in light and dark."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed: the page is not tried in a browser")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    problems = []
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            page.on("console", lambda message: problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: None if is_own(request.url) else problems.append(request.url))
            page.goto(file.as_uri())
            for opened in page.query_selector_all("summary"):
                opened.click()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    problems.append(f"{wide} pixels wide on a screen of {width}")
            for found in axe.Axe().run(page).response["violations"]:
                problems.append((found["id"], [node["html"][:200] for node in found["nodes"]][:3]))
            if screenshots is not None:
                page.screenshot(path=screenshots / f"{file.stem}-{scheme}.png", full_page=True)
        browser.close()
    assert problems == []
