"""Owns how texts become words: what is equal, where a word begins, and how far two words are."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

GAP: Final = 8
"""How far apart the words beside the end of a sentence are, and those of two items of an array."""
POSITIONS_MAX: Final = 65_535
"""Words of an attribute beyond this are not searched."""

RUN_MAX: Final = 10_000
"""Chinese characters that are cut at a time; no text for people has as many in a row."""

# Chinese characters, which a dictionary cuts into words; in a text with kana they are Japanese.
_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_ALL_HAN: Final = re.compile(f"[{_HAN}]+")
_KANA: Final = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
# Scripts without blanks between words, and Korean: each character is a word.
_SINGLE: Final = "\u3040-\u30ff\uac00-\ud7af\u0e00-\u0e7f"
_LETTER: Final = rf"[^\W_{_SINGLE}{_HAN}]"
_HARD: Final = re.compile(r"[.!?;,:|(){}\[\]\u2026\u3002\uff0c\n]")


class Word(NamedTuple):
    """`text` is normalized; `start` and `end` are characters of the original."""

    text: str
    position: int
    start: int
    end: int


@lru_cache(maxsize=65_536)
def normalized(text: str) -> str:
    """Without case and accents: what is equal to a reader."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in folded if not unicodedata.combining(each))


class Tokenizer:
    """Cuts texts into words.

    `separators` end a word, `joiners` are letters of one, and what is in `dictionary` is one word,
    wherever it is.
    """

    def __init__(
        self,
        separators: tuple[str, ...] = (),
        joiners: tuple[str, ...] = (),
        dictionary: tuple[str, ...] = (),
    ) -> None:
        listed, ends = _any_of(dictionary), _any_of(separators)
        stop = "".join(rf"(?!{each})" for each in (listed, ends) if each)
        letter = "|".join([each for each in (_any_of(joiners),) if each] + [_LETTER])
        parts = [
            *([rf"(?P<word>(?i:{listed}))"] if listed else []),
            *([ends] if ends else []),
            rf"(?P<han>(?:{stop}[{_HAN}]){{1,{RUN_MAX}}})",
            rf"(?P<letters>[{_SINGLE}{_HAN}]|(?:{stop}(?:{letter}))+)",
        ]
        self._pattern = re.compile("|".join(parts), re.DOTALL)

    def words(self, text: str, first: int = 0) -> list[Word]:
        """All words in order; a sentence's end counts as several positions."""
        found: list[Word] = []
        position, last = first, 0
        for start, end in self._places(text):
            if found:
                position += GAP if _HARD.search(text, last, start) else 1
            if position - first > POSITIONS_MAX:
                break
            last = end
            # A word of the dictionary may have blanks, and words are stored with blanks between.
            plain = "_".join(normalized(text[start:end]).split())
            if plain:
                found.append(Word(plain, position, start, end))
        return found

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Where words begin and end."""
        is_japanese: bool | None = None
        for match in self._pattern.finditer(text):
            if match.lastgroup is None:
                continue
            start, end = match.span()
            if match.lastgroup != "han" or end - start == 1:
                yield start, end
                continue
            if is_japanese is None:
                is_japanese = _KANA.search(text) is not None
            for word in match.group() if is_japanese else chinese_words(match.group()):
                yield start, start + len(word)
                start += len(word)


def chinese_words(text: str) -> list[str]:
    """All of a text of Chinese characters, in order; as Meilisearch cuts it, by jieba's words."""
    import rjieba  # noqa: PLC0415 - its dictionary takes 33 MB, and most instances have no Chinese

    return list(rjieba.cut(text, hmm=False))


def characters(words: Sequence[str]) -> tuple[str, ...] | None:
    """The words as a Japanese text has them: Chinese characters one by one. None if that is so."""
    found = tuple(
        part for word in words for part in (word if _ALL_HAN.fullmatch(word) else (word,))
    )
    return None if len(found) == len(words) else found


def tokenizer(settings: Mapping[str, Any]) -> Tokenizer:
    """As the settings of an index have it."""
    names = ("separatorTokens", "nonSeparatorTokens", "dictionary")
    return _tokenizer(*(tuple(sorted(settings[name])) for name in names))


@lru_cache(maxsize=64)
def _tokenizer(
    separators: tuple[str, ...], joiners: tuple[str, ...], dictionary: tuple[str, ...]
) -> Tokenizer:
    return Tokenizer(tuple(set(separators) - set(joiners)), joiners, dictionary)


def _any_of(given: tuple[str, ...]) -> str:
    """A pattern of these texts, the longest first; empty where there is none."""
    wanted = sorted(filter(str.strip, given), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, wanted))})" if wanted else ""
