from __future__ import annotations

import pytest

from rota.domain.crontab import NameGiver


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --all", "backup"),
        ("cd /srv && nice -n 10 ./poll.py", "poll"),
        ("FOO=1 /usr/bin/python3 /opt/report.py > /dev/null 2>&1", "report"),
        ("test -x /usr/sbin/anacron || ( cd / && run-parts /etc/cron.daily )", "run-parts"),
        ("[ -x /usr/bin/certbot ] && certbot -q renew", "certbot"),
        ("'/opt/my tool/run it'", "my"),
        ("python3", "python3"),
        ("/opt/Größe.sh", "Gr-e"),
        ("../../../", "job"),
        ("$(cmd)", "cmd"),
        ("-rf", "job"),
        ("x" * 500, "x" * 60),
    ],
)
def test_name_says_what_is_run(command: str, name: str) -> None:
    assert NameGiver().give(command, "@daily") == name
