"""For tests of your own jobs: an app's functions run in the test itself, and time moves when told.

Public. May use every part but the CLI; must not be imported by any of them.
"""

from __future__ import annotations

from rota.testing.inline import Inline, inline

__all__ = ["Inline", "inline"]
