"""What an attempt prints, as records: one a line, packed into chunks, read back byte for byte.

Pure: it is given bytes and times. Where chunks are kept and how they travel is decided elsewhere.
"""

from __future__ import annotations

from rota.domain.output.chunks import Chunk, gap_up_to, unpack
from rota.domain.output.recorder import OutputRecorder, Totals
from rota.domain.output.records import Record, Stream, find_records, read_records, to_raw

__all__ = [
    "Chunk",
    "OutputRecorder",
    "Record",
    "Stream",
    "Totals",
    "find_records",
    "gap_up_to",
    "read_records",
    "to_raw",
    "unpack",
]
