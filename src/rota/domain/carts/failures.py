"""Failures that are alike: messages without what differs from item to item."""

from __future__ import annotations

import re

MAX_CAUSE = 200  # characters
_MOST_READ = 4_000  # of a message: far more than can be left of it

# The first that fits wins. None of them can match in two ways, so the time is linear.
_VARIABLE = re.compile(
    r"""
      (?P<text> "[^"]*" | `[^`]*` | (?<!\w)'[^']*'(?!\w) )
    | (?P<url> \b[a-z][a-z0-9+]{1,15}://[^\s"'<>]+ )
    | (?P<time>
          \b[0-9]{4}-[0-9]{2}-[0-9]{2}
          (?: [T\ ][0-9]{2}:[0-9]{2} (?: :[0-9]{2} (?: [.,][0-9]+ )? )?
              (?: Z | \ ?[+-][0-9]{2}:?[0-9]{2} )? )? \b
        | \b[0-9]{1,2}:[0-9]{2}:[0-9]{2} (?: [.,][0-9]+ )? \b )
    | (?P<id>
          \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
        | \b[a-z]{1,3}_[0-9a-z]{8,}\b )
    | (?P<path> (?<![\w/]) (?: ~ | \.{1,2} | [a-z]: )? (?: [/\\][\w.@+~-]+ )+ [/\\]? )
    | (?P<host>
          \b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b
        | (?<![\w:]) (?=[0-9a-f:]*[0-9]) [0-9a-f]{0,4} (?: :[0-9a-f]{0,4} ){2,7} (?![\w:]) )
    | (?P<hex> \b0x[0-9a-f]+\b | \b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b )
    | (?P<duration>
          (?<!\w) (?: [0-9]+(?:\.[0-9]+)? \ ?
                      (?: ns | [uµ]s | ms | s | sec | secs | seconds? | m | min | mins | minutes?
                        | h | hrs? | hours? | d | days? ) (?![^\W\d]) )+ )
    | (?P<code> \b(?: exit | step | signal | status | code | http )\ [0-9]{1,5}\b )
    | (?P<word> [^\W\d]\w*(?:[.-]\w+)* )
    | (?P<n> (?: (?<!\w)[+-] )? [0-9]+(?:[.,][0-9]+)* )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def cause_of(message: str) -> str:
    """What a failure message says, whichever item says it: the key of a group of failures.

    Numbers, times, ids, quoted texts, paths and names with digits become placeholders:
    `disk full on db-017: 12 MB left` is `disk full on <name>: <n> MB left`. Codes stay: `exit 137`.
    """
    text = " ".join(message[:_MOST_READ].split())
    return _VARIABLE.sub(_placeholder, text)[:MAX_CAUSE].rstrip()


def _placeholder(match: re.Match[str]) -> str:
    kind = match.lastgroup
    word = match[0]
    if kind == "code":
        return word
    if kind != "word":
        return f"<{kind}>"
    return "<name>" if any(char.isdigit() for char in word) else word
