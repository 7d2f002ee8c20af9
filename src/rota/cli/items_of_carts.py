"""Items in files that the carts of a job file name: read here, for the server cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rota.cli.failures import FileRefused
from rota.cli.files import NamedText


def with_items(source: NamedText, folder: Path) -> NamedText:
    """The job file, and the items that lie beside it; `folder` is its own."""
    if "items_from" not in source.text:
        return source
    return replace(source, items=tuple(_items(source, folder)))


def _items(source: NamedText, folder: Path) -> Iterator[Mapping[str, object]]:
    from rota.runtime.item_files import items_beside  # slow to import, and not for every file
    from rota.runtime.offline import Invalid

    # What is wrong with the job file itself is told by the server.
    for found in items_beside(source.text, name=source.stem, folder=folder):
        try:
            yield from found.documents()
        except Invalid as error:
            raise FileRefused(found.label, error.message, error.problems) from error
