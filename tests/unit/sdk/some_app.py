"""A module with apps, to be found by name."""

from __future__ import annotations

from rota import App

app = App("usual")
nightly = App("nightly")
other = "not an app"
