"""The listening page, opened and played in a real browser."""

import io
import math
import re
import shutil

import numpy as np
import pytest
import soundfile

from ghrq.models.bitstream import HEADER_BYTES
from ghrq.report.listen import write_page
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from small_codec import small_codec, speech_like

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listen")
    sound = folder / "a <b> & `c`.wav"
    stereo = np.stack([speech_like(180_000, 1).numpy(), speech_like(180_000, 2).numpy()], axis=1)
    soundfile.write(sound, stereo, 11_025)
    heard = write_page(small_codec(), sound, folder / "page.html", Progress(), start=0.5, seconds=15.0)
    assert heard.seconds == 15.0
    return folder / "page.html", heard


def test_one_file_with_every_depth_and_its_bitrates(page_file):
    path, heard = page_file
    html = path.read_text()
    assert [version.name for version in heard.versions] == ["original", "1 stage", "2 stages", "4 stages"]
    # The codec of the test has 200 frames a second, 2 channels, and 6 bits a code.
    assert [version.nominal for version in heard.versions[1:]] == ["2.40 kbit/s", "4.80 kbit/s", "9.60 kbit/s"]
    for version in heard.versions[1:]:
        assert float(version.real.split()[0]) > 8e-3 * HEADER_BYTES / heard.seconds
    assert html.count("<audio") == html.count("data:audio/flac") == html.count("data:image/png") == 4
    assert "a &lt;b&gt; &amp;" in html
    addresses = re.findall(r"""(?:src|href)=["']([^"']{1,40})|url\(([^)]{1,40})""", html)
    assert all(address.startswith(("data:", "#")) for pair in addresses for address in pair if address)


def test_no_sound_is_refused(tmp_path):
    sound = tmp_path / "a.wav"
    soundfile.write(sound, np.zeros((100, 1)), 8000)
    for start in (9.0, math.inf):
        with pytest.raises(UserError, match=rf"a\.wav has no sound from second {start:g} on: it has 0\.01 s"):
            write_page(small_codec(), sound, tmp_path / "page.html", Progress(), start=start)
    assert not (tmp_path / "page.html").exists()


def test_a_rate_that_flac_has_not_is_heard_at_another(tmp_path):
    sound = tmp_path / "a.wav"
    soundfile.write(sound, speech_like(30_000).numpy(), 768_000)
    heard = write_page(small_codec(), sound, tmp_path / "page.html", Progress())
    assert heard.seconds == pytest.approx(30_000 / 768_000, abs=1e-4)
    assert soundfile.info(io.BytesIO(heard.versions[0].sound)).samplerate == 48_000


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: the page is not tried in a browser")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield found
        found.close()


@pytest.fixture
def page(browser, page_file):
    """The open page; no test may leave an error in the console, or ask for anything beside the file."""
    page = browser.new_page()
    told, asked = [], []
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file[0].as_uri())
    page.wait_for_function("[...document.querySelectorAll('audio')].every((sound) => sound.readyState >= 3)")
    yield page
    assert told == []
    assert [url for url in asked if not url.startswith("data:")] == [page_file[0].as_uri()]
    page.close()


def times(page):
    return page.evaluate("[...document.querySelectorAll('audio')].map((s) => [s.currentTime, !s.paused, s.duration])")


@pytest.mark.slow
def test_playing_goes_on_in_another_version(page):
    assert [round(duration, 2) for _, _, duration in times(page)] == [15.0] * 4
    page.get_by_role("button", name="original").click()
    page.wait_for_function("document.querySelectorAll('audio')[0].currentTime > 0.4")
    page.get_by_role("button", name="2 stages").click()
    page.wait_for_function("!document.querySelectorAll('audio')[2].paused")
    place, others = times(page)[2], [times(page)[i] for i in (0, 1, 3)]
    assert place[0] >= 0.4
    assert [playing for _, playing, _ in others] == [False] * 3
    page.wait_for_function(f"document.querySelectorAll('audio')[2].currentTime > {place[0] + 0.2}")
    page.get_by_role("button", name="Pause").click()
    assert not any(playing for _, playing, _ in times(page))
    page.locator(".picture").nth(3).click(position={"x": 5, "y": 5})
    page.wait_for_function("!document.querySelectorAll('audio')[3].paused")
    assert times(page)[3][0] < 3.0
    page.keyboard.press("1")
    page.wait_for_function("!document.querySelectorAll('audio')[1].paused")


@pytest.mark.slow
def test_blind_test(page):
    page.get_by_label("Original against").select_option("1 stage")
    orders = set()
    for trial in range(1, 13):
        page.locator("[data-hear='0']").click()
        page.wait_for_function("[...document.querySelectorAll('audio')].some((s) => !s.paused && s.currentTime > 0)")
        a = [playing for _, playing, _ in times(page)].index(True)
        page.locator("[data-hear='1']").click()
        page.wait_for_function(f"[...document.querySelectorAll('audio')].some((s, i) => i != {a} && !s.paused)")
        b = [playing for _, playing, _ in times(page)].index(True)
        assert {a, b} == {0, 1}  # the original, and one stage
        assert page.locator(".version.current").count() == 0  # the page does not tell
        assert page.locator("#verdict").inner_text() == ""
        orders.add(a)
        page.locator("[data-guess='0']").click()
        told = page.locator("#verdict").inner_text()
        letters = "AB" if a == 0 else "BA"
        assert f"{letters[0]} is the original, {letters[1]} has 1 stage." in told
        assert told.startswith("Right" if a == 0 else "Wrong")
        assert f"of {trial} right" in page.locator("#score").inner_text()
        page.get_by_role("button", name="Next").click()
        assert not any(playing for _, playing, _ in times(page))
        if len(orders) == 2:
            break
    assert orders == {0, 1}  # in 12 draws but for 1 in 2048
    page.get_by_role("button", name="Tell me").click()
    assert "is the original" in page.locator("#verdict").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
