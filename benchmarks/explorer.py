"""The explorer in headless Chromium with software rendering: size, first picture, frames over a scripted drag.

    ghrq explore tok/ tok/ids.parquet --out page.html && python benchmarks/explorer.py page.html

Frames a second depend on what else the machine does; the processor time of a frame hardly does: below 20 ms a frame,
all processes of the browser together, 50 frames a second need one core.
"""

import argparse
import re
import shutil
from pathlib import Path

import psutil
from playwright.sync_api import sync_playwright

FRAMES = 180

# A spiral through the disk, from three nodes on, one position a frame.
DRAG = """async (frames) => {
  const pane = explorer.panes[0], { tree, canvas } = pane, box = canvas.getBoundingClientRect(), r = pane.look.radius;
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  const send = (type, dx, dy) =>
    canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: x + r * dx, clientY: y + r * dy }));
  const frame = () => new Promise(requestAnimationFrame);
  canvas.setPointerCapture = () => {};
  const first = tree.largestChild(0), rows = [];
  for (const [name, node] of [["root", 0], ["a first code", first], ["two codes", tree.largestChild(first)]]) {
    pane.fly(node, true);
    await frame();
    pane.costs.length = 0;
    send("pointerdown", 0.2, 0);
    let nodes = 0;
    const start = performance.now();
    for (let i = 0; i < frames; i++) {
      const angle = (4 * Math.PI * i) / frames, radius = 0.75 * Math.sin(angle / 2);
      send("pointermove", radius * Math.cos(angle), radius * Math.sin(angle));
      await frame();
      nodes += pane.scene.count;
    }
    const wall = performance.now() - start, costs = [...pane.costs].sort((a, b) => a - b);
    send("pointerup", 0, 0);
    rows.push([name, (1000 * frames) / wall, costs[costs.length >> 1], nodes / frames]);
  }
  return rows;
}"""


def processor_seconds() -> float:
    """Of all processes of the browser."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                total += process.cpu_times().user + process.cpu_times().system
        except psutil.NoSuchProcess:
            pass
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    page_file = parser.parse_args().page
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        before = processor_seconds()
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        loaded = processor_seconds() - before
        first = page.evaluate("performance.getEntriesByName('first-picture')[0].startTime") / 1000
        subtitle = re.sub(r"\s+", " ", page.inner_text(".subtitle"))
        prefixes = page.evaluate("explorer.panes[0].tree.size - 1")
        print(f"{subtitle}; {prefixes:,} prefixes; {page_file.stat().st_size / 1e6:.1f} MB")
        print(f"first picture after {first:.2f} s, {loaded:.2f} s of processor time")
        page.wait_for_timeout(1000)
        before = processor_seconds()
        rows = page.evaluate(DRAG, FRAMES)
        used = 1000 * (processor_seconds() - before) / (FRAMES * len(rows))
        for name, rate, cost, nodes in rows:
            print(f"drag from {name}: {rate:.0f} frames/s, script {cost:.1f} ms a frame, {nodes:,.0f} nodes drawn")
        print(f"processor time of a frame: {used:.1f} ms, all processes of the browser")
        browser.close()


if __name__ == "__main__":
    main()
