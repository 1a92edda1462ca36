"""Which words are in which texts: what automatic sources make rules of.

n texts, V words or pairs of words. Texts are compared in lower case (casefolded, NFC). A word is a run of letters, digits and
underscores. A pair is two words with one space between them, so that "check out" occurs where a keyword rule with these words
would find it (`believe.rules`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelchef.believe.searching import fold

_TOKEN = re.compile(r"\w+")
_LONGEST = 40


@dataclass(frozen=True)
class Words:
    """A vocabulary of V words and pairs."""

    names: tuple[str, ...]
    """(V,) in alphabetical order."""

    @classmethod
    def of(cls, texts: Sequence[str], *, least: int, most_share: float = 0.5, most: int = 5000) -> "Words":
        """Words and pairs in at least `least` texts and at most a share of them; the `most` frequent ones if there are more.

        A pair that is in the same number of texts as one of its words is left out: it says the same.

        >>> Words.of(["Check out this", "check out that", "check this"], least=2, most_share=1.0).names
        ('check', 'out', 'this')
        """
        counts = Counter(word for text in texts for word in set(words_of(text)))
        largest = max(least, int(most_share * len(texts)))
        kept = sorted(
            (-count, name)
            for name, count in counts.items()
            if least <= count <= largest and len(name) <= _LONGEST
            if " " not in name or all(counts[part] > count for part in name.split(" "))
        )
        return cls(tuple(sorted(name for _, name in kept[:most])))

    def presence(self, texts: Sequence[str]) -> Any:
        """`csr_array` (n, V) in uint8: 1 where text i has the word or pair v."""
        place = {name: v for v, name in enumerate(self.names)}
        indptr, indices = [0], []
        for text in texts:
            indices += sorted({place[name] for name in words_of(text) if name in place})
            indptr.append(len(indices))
        ones = np.ones(len(indices), dtype=np.uint8)
        return csr_array((ones, indices, indptr), shape=(len(texts), len(self.names)))


def words_of(text: str) -> Iterator[str]:
    """Words and pairs of a text, in their order, as often as they occur.

    >>> list(words_of("To WIN, win big"))
    ['to', 'win', 'to win', 'win', 'big', 'win big']
    """
    folded = fold(text)
    before, end = "", -1
    for found in _TOKEN.finditer(folded):
        word = found.group()
        yield word
        if found.start() == end + 1 and folded[end] == " ":
            yield f"{before} {word}"
        before, end = word, found.end()
