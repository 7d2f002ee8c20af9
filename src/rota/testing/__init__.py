"""What tests of Rota are made of, public: fake clock, builders, conformance suites, fault harness.

May use every part but the CLI. Must not be imported by any of them.
"""

from __future__ import annotations

from rota.testing.inline import Inline, inline

__all__ = ["Inline", "inline"]
