"""Takes over what cron did: a crontab in, a job file out. Pure; it knows no files."""

from __future__ import annotations

from rota.domain.crontab.conversion import CrontabImport, import_crontab

__all__ = ["CrontabImport", "import_crontab"]
