"""A real Chromium, driven by WebDriver: a dozen calls of HTTP, for which no library is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how WebDriver names a reference
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
)


def find_chromium() -> tuple[str, str] | None:
    """Return the programs Chromium and its driver; None: they are not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (chromium, driver) if chromium and driver else None


class Browser:
    """One browser with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(timeout=30, trust_env=False)
        self._session = ""

    def __enter__(self) -> Self:
        found = find_chromium()
        assert found, "no Chromium: install the Debian packages chromium and chromium-driver"
        chromium, driver = found
        self._folder.mkdir(parents=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [driver, f"--port={self._port}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            eventually(self._is_ready, otherwise="chromedriver did not get ready")
            self._open(chromium)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def go(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    @property
    def address(self) -> str:
        return str(self._call("GET", "/url"))

    @property
    def text(self) -> str:
        """Return what a person sees."""
        return str(self._call("GET", f"/element/{self._find('body')}/text"))

    @property
    def cookies(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/cookie"))

    def fill(self, selector: str, text: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def has(self, selector: str) -> bool:
        found = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return bool(found)

    def run(self, script: str) -> Any:
        """Run a script in the page; return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def eventually_sees(self, words: str) -> None:
        def sees() -> bool:
            assert words in self.text, f"{self.address}: {self.text}"
            return True

        eventually(sees)

    def _find(self, selector: str) -> str:
        def found() -> str:
            query = {"using": "css selector", "value": selector}
            elements = self._call("POST", "/elements", query)
            assert elements, f"no {selector} at {self.address}"
            return str(elements[0][_ELEMENT])

        return eventually(found)

    def _open(self, chromium: str) -> None:
        profile = f"--user-data-dir={self._folder / 'profile'}"
        options = {"binary": chromium, "args": [*_FLAGS, profile]}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        answer = self._http.post(self._at("/session"), json={"capabilities": wanted})
        value = answer.json()["value"]
        assert "sessionId" in value, value
        self._session = f"/session/{value['sessionId']}"

    def _call(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, self._at(self._session + path), json=body)
        value = answer.json()["value"]
        assert answer.status_code == httpx.codes.OK, value
        return value

    def _is_ready(self) -> bool:
        try:
            return bool(self._http.get(self._at("/status")).json()["value"]["ready"])
        except httpx.TransportError:
            return False

    def _at(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def _end(self) -> None:
        if self._session:
            self._http.delete(self._at(self._session))
        self._http.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
