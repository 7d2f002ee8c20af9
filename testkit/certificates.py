"""Certificates for servers on loopback, made by the `openssl` command for one test or cluster."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """Self-signed certificate: it is its own authority."""

    certificate: Path
    key: Path


def make_certificate(
    folder: Path, name: str = "server", names: str = "IP:127.0.0.1,DNS:localhost"
) -> Certificate:
    """Create a certificate for 127.0.0.1 and localhost or other names, valid for a day."""
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "1", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", f"subjectAltName={names}"),
            *("-out", str(made.certificate), "-keyout", str(made.key)),
        ],
        check=True,
        capture_output=True,
    )
    return made
