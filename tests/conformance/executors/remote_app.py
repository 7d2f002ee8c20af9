"""An executor class whose other system behaves as the conformance suite asks for."""

# ruff: noqa: T201 (to print is what these methods are for)

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rota import App, NotSubmitted, RemoteRun, Status

app = App("remote")
_LEFT_SECONDS = "987654321"  # that of the suite, which would bring pytest into the host


@app.executor("conforming")
class Conforming:
    every = 0.05
    patience = 1
    call_timeout = 30

    def submit(self, run: RemoteRun) -> Any:
        behaviour, folder = run.parameters["behaviour"], Path(run.parameters["folder"])
        if behaviour == "refuse":
            raise NotSubmitted("the desk is closed")
        with (folder / "submissions").open("a") as file:
            file.write(f"{run.id}\n")
        self._act(behaviour)
        if behaviour == "at_once":
            return Status("completed", output={"rows": 3})
        if behaviour == "nameless":
            return None
        return {"behaviour": behaviour} | ({"x": "x" * 5_000} if behaviour == "wordy" else {})

    def _act(self, behaviour: str) -> None:
        match behaviour:
            case "speak":
                print("out 1")
                print("err 1", file=sys.stderr)
                print("out 2")
            case "fail":
                print("no water", file=sys.stderr)
            case "hold" | "deaf" | "silent":
                print("ready")
            case "pour":
                for number in range(1, 500_001):
                    print(number)
            case "leave":
                subprocess.Popen(["sleep", _LEFT_SECONDS], start_new_session=True)
            case "break":
                raise ConnectionError("the line went dead")
            case _:
                pass

    def status(self, handle: dict[str, str]) -> Status | str:
        match handle["behaviour"]:
            case "hold" | "deaf":
                return "processing"
            case "progress":
                return Status("processing", "quarter", progress=1, total=4)
            case "fail":
                return Status("failed", "no water")
            case "result":
                return Status("completed", output={"rows": 3})
            case "silent":
                raise ConnectionError("nobody there")
            case "odd":
                return "fine"
            case _:
                return "completed"

    def cancel(self, handle: dict[str, str]) -> None:
        if handle["behaviour"] == "deaf":
            threading.Event().wait()
        print("tidy")
