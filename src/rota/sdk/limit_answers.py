"""What the server says about rate limits, named resources, quotas and shares."""

from __future__ import annotations

from rota.api.limits import Bucket, DeclarationChange, Limit, Quota, Resource, Share, Use

__all__ = [
    "Bucket",
    "DeclarationChange",
    "Limit",
    "Quota",
    "Resource",
    "Share",
    "Use",
]
