"""Whatever a job leaves where Rota reads costs that job's result at most."""

from __future__ import annotations

import pytest

from rota.sdk.client import Client
from tests.system.jobs import execute, log_of

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo '{\"id\": 123456789012345678901234567890}' > $ROTA_OUTPUT", "64 bits"),
        ("python3 -c \"print('[' * 500 + ']' * 500)\" > $ROTA_OUTPUT", "deeper"),
        ("python3 -c \"print('[' * 100000)\" > $ROTA_OUTPUT", "not JSON"),
        ("mkfifo $ROTA_OUTPUT", "not a plain file"),
        ("ln -s /etc/hostname $ROTA_OUTPUT", "could not be read"),
        ("truncate -s 3M $ROTA_OUTPUT", "over 1 MiB"),
    ],
)
def test_outputs_that_cannot_be_kept_are_told(client: Client, script: str, complaint: str) -> None:
    run = execute(client, script)

    assert (run.state, run.outputs) == ("COMPLETED", None)
    assert complaint in log_of(client, run.id)
    assert run.id in [each.id for each in client.list_runs().items]


def test_worker_outlives_odd_progress_files(client: Client) -> None:
    odd = execute(
        client,
        'python3 -c "print(\'{\\"done\\":\' * 100000)" > $ROTA_PROGRESS; sleep 1.2',
        "echo nan/inf hi > $ROTA_PROGRESS; sleep 1.2",
        "rm $ROTA_PROGRESS; mkfifo $ROTA_PROGRESS; sleep 1.2",
    )
    plain = execute(client, "echo 3/10 so far > $ROTA_PROGRESS; sleep 1.2")

    assert (odd.state, odd.progress) == ("COMPLETED", None)
    assert plain.progress is not None
    assert (plain.progress.done, plain.progress.total) == (3, 10)
    assert (odd.losses, plain.losses) == (0, 0)
