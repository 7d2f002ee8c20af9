"""The program: reads a wish, fulfils it, and tells how that went.

Its arguments are two descriptors: of the wish, and of what it tells.
"""

from __future__ import annotations

import os
import resource
import sys

from rota.domain.masking import Masker
from rota.sources import git, unpack
from rota.sources.wish import SOURCE, SourceRefused, SourceReport, SourceWish, say, sized

_MOST_WISH = 4 * 1024**2
_MOST_MEMORY = 1024**3


def main(wish: int, report: int) -> int:
    """Return the exit code."""
    for descriptor in (wish, report):
        os.set_inheritable(descriptor, False)  # git is not to have them
    told = fulfil(SourceWish.decode(os.pread(wish, _MOST_WISH, 0)))
    told.write(report)
    return 1 if told.error else 0


def fulfil(wish: SourceWish) -> SourceReport:
    """Bring everything into the folder."""
    os.umask(0o022)
    commit, cause = "", SOURCE
    mask = wish.git.mask if wish.git is not None else Masker()
    try:
        if wish.git is not None:
            commit = git.fetch(wish.git, wish.folder, wish.bounds)
            say(f"{wish.git.url} at {commit}")
        if wish.files:  # what decompresses may want more than there is
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        for file in wish.files:
            cause = file.cause
            os.set_inheritable(file.descriptor, False)
            count = unpack.place(file, wish.folder, wish.bounds)
            what = f"{count} entries of {file.name}" if count > 1 else file.name or "a file"
            say(f"{what}, {sized(file.size)}")
    except SourceRefused as refusal:
        return SourceReport(mask.text(str(refusal)), cause)
    except OSError as error:
        return SourceReport(f"the source cannot be written: {error.strerror or error}", cause)
    return SourceReport(commit=commit)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
