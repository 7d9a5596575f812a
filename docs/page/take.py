"""Take the screenshots in this folder anew, of pages that `verify report --html` wrote.

    verify report cpu.json h200.json --html page.html
    python docs/page/take.py page.html [NAME...]

Needs playwright (pip install -c constraints.txt '.[browser]') and an installed Chromium or Chrome. A page of full
reports, as `verify run` writes them, has plots by binade; of those in reports/recorded/ it has none.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).resolve().parent
#: Name: part of the page, colours, width and height in pixels.
SHOTS = {
    "overview-light": ("#/", "light", 1360, 900),
    "overview-dark": ("#/", "dark", 1360, 900),
    "kernel": ("#/kernel/tanh?dtype=float32", "light", 1200, 1290),
    "narrow": ("#/", "light", 400, 1100),
}


def main(page: str, *names: str) -> int:
    executable = os.environ.get("VERIFY_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name in names or SHOTS:
            place, scheme, width, height = SHOTS[name]
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(Path(page).resolve().as_uri() + place)
            tab.wait_for_selector("h1")
            if "kernel" in place:
                tab.wait_for_selector("#right svg, #plots svg")
            tab.wait_for_timeout(500)
            tab.screenshot(path=FOLDER / f"{name}.png")
            print(f"{name}.png: {(FOLDER / f'{name}.png').stat().st_size / 1e3:.0f} KB")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
