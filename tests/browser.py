"""A real browser, without a window: Chromium, spoken to over a pair of pipes (its DevTools protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars", "remote-debugging-pipe",
)  # fmt: skip
_LOOK = """(() => {
  const faults = [], lies = (a, b) =>
    a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  const out = (a, frame) => a.left < frame.left - 1 || a.right > frame.right + 1
    || a.top < frame.top - 1 || a.bottom > frame.bottom + 1;
  for (const [number, svg] of [...document.querySelectorAll('svg')].entries()) {
    const frame = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
    const boxes = [...svg.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
    if (boxes.length && frame.width < 0.75 * width) faults.push(`svg ${number}: ${width} shrunk to ${frame.width}`);
    for (const [place, [text, box]] of boxes.entries()) {
      if (out(box, frame)) faults.push(`svg ${number}: '${text}' is cut`);
      for (const [other, theirs] of boxes.slice(place + 1))
        if (lies(box, theirs)) faults.push(`svg ${number}: '${text}' lies on '${other}'`);
    }
  }
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) faults.push(`the page is ${page.scrollWidth} wide in ${page.clientWidth}`);
  return {faults, drawings: document.querySelectorAll('svg[role=img]').length, title: document.title,
    text: document.body.innerText, scripts: document.querySelectorAll('script').length};
})()"""


@dataclass(frozen=True)
class Visit:
    """What the browser said of a page."""

    complaints: list[str]
    """On its console: errors, warnings, refusals."""
    requests: list[str]
    """All it asked for, but for the file itself and what lies inside it."""
    faults: list[str]
    """Labels that overlap or are cut, drawings too small to read, a page wider than the window."""
    drawings: int
    title: str
    text: str
    scripts: int
    picture: bytes


class Browser:
    """Ended, with all it started, when left."""

    def __enter__(self) -> Browser:
        assert CHROMIUM is not None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]

        def take() -> None:  # Chromium reads from 3 and writes to 4
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        command = [CHROMIUM, *(f"--{flag}" for flag in _FLAGS), f"--user-data-dir={self._home.name}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=take,  # noqa: PLW1509 - one thread, and no other way to these numbers
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self._home.name},
        )  # fmt: skip
        for end in (*ends, theirs_in, theirs_out):
            os.close(end)
        self._rest, self._number = b"", 0
        self._events: list[dict[str, Any]] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._home.cleanup()

    def visit(self, path: Path, width: int = 1280, *, dark: bool = False) -> Visit:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", session)
        self._call(
            "Emulation.setDeviceMetricsOverride", session, width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", session, features=[scheme])
        self._events.clear()
        self._call("Page.navigate", session, url=path.resolve().as_uri())
        self._until(lambda: any(event["method"] == "Page.loadEventFired" for event in self._events))
        found = self._call("Runtime.evaluate", session, expression=_LOOK, returnByValue=True)["result"]["value"]
        shot = self._call("Page.captureScreenshot", session, format="png", captureBeyondViewport=True)
        self._call("Target.closeTarget", targetId=target)
        return Visit(*self._heard(path), picture=base64.b64decode(shot["data"]), **found)

    def _heard(self, path: Path) -> tuple[list[str], list[str]]:
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        complaints = [json.dumps(event["params"]) for event in self._events if event["method"] in kinds]
        asked = [e["params"]["request"]["url"] for e in self._events if e["method"] == "Network.requestWillBeSent"]
        return complaints, [url for url in asked if url != path.resolve().as_uri() and not url.startswith("data:")]

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        self._answer: dict[str, Any] | None = None
        self._until(lambda: self._answer is not None)
        assert self._answer is not None
        assert "error" not in self._answer, f"{method}: {self._answer}"
        result: dict[str, Any] = self._answer["result"]
        return result

    def _until(self, done: Any, limit: float = 60.0) -> None:
        end = time.monotonic() + limit
        while not done():
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            heard = os.read(self._read, 1 << 20) if ready else b""
            assert heard, "the browser ended" if ready else f"the browser was silent for {limit} s"
            *messages, self._rest = (self._rest + heard).split(b"\0")
            for message in map(json.loads, messages):
                if message.get("id") == self._number:
                    self._answer = message
                elif "method" in message:
                    self._events.append(message)
