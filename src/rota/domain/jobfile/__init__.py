"""The job file: text in, validated specs out; and its schema, reference page and export.

Pure: it is given text and never opens a file. It knows nothing of stores or of what is running;
whether a job may replace another is decided elsewhere.
"""

from __future__ import annotations

from rota.domain.jobfile.carts import CartEntry, cart_document, read_cart
from rota.domain.jobfile.export import json_schema, reference, to_block, to_yaml
from rota.domain.jobfile.read import JobEntry, JobFile, read_file, read_job
from rota.domain.jobfile.rules import parse_input_sets, parse_inputs

__all__ = [
    "CartEntry",
    "JobEntry",
    "JobFile",
    "cart_document",
    "json_schema",
    "parse_input_sets",
    "parse_inputs",
    "read_cart",
    "read_file",
    "read_job",
    "reference",
    "to_block",
    "to_yaml",
]
