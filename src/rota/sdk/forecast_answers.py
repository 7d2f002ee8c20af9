"""What the server says about what is coming."""

from __future__ import annotations

from rota.api.forecasts import (
    Expected,
    Forecast,
    ForecastAccuracy,
    ForecastStart,
    JobForecast,
    Load,
    LoadBucket,
    LoadPeak,
    Quiet,
    Saturation,
    SlowRun,
)

__all__ = [
    "Expected",
    "Forecast",
    "ForecastAccuracy",
    "ForecastStart",
    "JobForecast",
    "Load",
    "LoadBucket",
    "LoadPeak",
    "Quiet",
    "Saturation",
    "SlowRun",
]
