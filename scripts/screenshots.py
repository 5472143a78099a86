"""Draws the pictures of docs/explorer.md: `python scripts/screenshots.py RUN`, a run of filler-vs-sentence."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MODEL = "SmolLM2-135M"
SHOTS = {
    "explorer-map": ("map?measure=question&condition=filler&minus=none&queries=last", 1180, 700, "light"),
    "explorer-head": (f"{MODEL}/11/1?queries=all&measure=question", 1180, 1150, "light"),
    "explorer-prompt": ("prompt/4?beside=condition:filler&queries=last", 1180, 860, "light"),
    "explorer-phone": ("map?measure=question&condition=filler&minus=sentence&queries=last", 390, 844, "dark"),
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def main(run: str) -> None:
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from attnscope.cli.main import main; main()", "serve", run, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        address = (server.stdout or sys.stdin).readline().split(": ", 1)[1].strip()
        with sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
            for name, (view, width, height, scheme) in SHOTS.items():
                context = started.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1.5
                )
                page = context.new_page()
                page.goto(f"{address}{Path(run).resolve().name}/{view}")
                page.locator(".chart svg, .token").first.wait_for()
                while page.locator("figure[aria-busy]").count():
                    page.wait_for_timeout(50)
                if name == "explorer-prompt":
                    page.locator(".token[data-side='0'][data-position='26']").hover()
                page.screenshot(path=IMAGES / f"{name}.png")
                context.close()
            started.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main(sys.argv[1])
