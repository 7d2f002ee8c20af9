"""Tickets of a tracker, which is a folder here: a file for each, with its state in it."""

from __future__ import annotations

from pathlib import Path

from rota.plugins import Plugin, RemoteRun, Status


class Ticket:
    """Opens a ticket, and waits until somebody has closed it."""

    every = 0.2

    def submit(self, run: RemoteRun) -> dict[str, str]:
        desk = Path(run.parameters["desk"])
        with (desk / "opened").open("a") as opened:
            opened.write(f"{run.id}\n")
        ticket = desk / f"{run.parameters['queue']}-{run.id}"
        ticket.write_text("open")
        print("opened for", run.inputs["title"])  # noqa: T201 (it is the run's output)
        return {"ticket": str(ticket)}

    def status(self, handle: dict[str, str]) -> Status:
        state, _, who = Path(handle["ticket"]).read_text().partition(" ")
        match state:
            case "done":
                return Status("completed", output={"by": who})
            case "refused":
                return Status("failed", f"{who} refused it")
            case _:
                return Status("processing", "somebody looks at it", progress=0.4)

    async def cancel(self, handle: dict[str, str]) -> None:
        Path(handle["ticket"]).write_text("closed")  # noqa: ASYNC240 (a short file)


plugin = Plugin(
    api_version=1,
    type="ticket",
    executor=Ticket,
    schema={
        "type": "object",
        "properties": {
            "desk": {"type": "string", "minLength": 1},
            "queue": {"enum": ["OPS", "DEV"], "description": "Who looks at it."},
        },
        "required": ["desk", "queue"],
        "additionalProperties": False,
    },
)
