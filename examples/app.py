"""Functions as jobs.

rota up --app examples.app:app      # serves the functions
python -m examples.app              # in another shell: defines the jobs and runs one
"""

from __future__ import annotations

import asyncio
import sys

from rota import App, Context, Retry, cron, every

app = App("example")


@app.job(schedule=every("30s"))
def heartbeat(ctx: Context) -> None:
    """Say that all is well, twice a minute."""
    ctx.log(f"still here at {ctx.due_at:%H:%M:%S}")


@app.job(
    schedule=cron("0 2 * * *", tz="Europe/Berlin"),
    retry=Retry(3, backoff="exponential", delay="10s"),
    timeout="1h",
)
def nightly_backup(ctx: Context, target: str = "all") -> int:
    """Back up a database, or all of them."""
    with ctx.step("list"):
        databases = ["orders", "customers"] if target == "all" else [target]
    with ctx.step("dump"):
        for number, database in enumerate(databases, 1):
            ctx.log(f"dumping {database}")
            ctx.progress(number, total=len(databases))
    return len(databases)


@app.job(max_concurrency=20)
async def check(hosts: list[str]) -> dict[str, bool]:
    """Check many hosts at once; a list travels as JSON in the input `arguments`."""
    answers = await asyncio.gather(*(_answers(host) for host in hosts))
    return dict(zip(hosts, answers, strict=True))


async def _answers(host: str) -> bool:
    return not host.endswith(".invalid")


def main() -> None:
    app.apply()
    run = nightly_backup.submit(target="orders")
    for line in run.logs():
        sys.stdout.write(f"{line.text}\n")
    sys.stdout.write(f"{run.wait().output} dumped, see {run.url}\n")


if __name__ == "__main__":
    main()
