"""A plug-in whose import fails."""

from __future__ import annotations

raise RuntimeError("no licence for this machine")
