"""TF-IDF with its main directions: text becomes numbers without any download.

    T (n, v)   term weights: tf(t, i) = 1 + log count, idf(t) = log((1 + n) / (1 + df_t)) + 1, rows of length 1
    B = T E    (n, width), E (v, width) the right singular vectors of T with the largest singular values

Two kinds of terms, each a block of its own:

    words   one or two words in a row; any run of letters or digits is a word, one letter too
    chars   two to five characters within a word and its surroundings: parts of words, endings, punctuation, spelling mistakes,
            and languages that are written without spaces

At most `TERMS` terms are kept, the most frequent ones. Where there are more rows than directions, a term that occurs in one row
only is left out: it says nothing of any other row. Vocabulary, idf and directions are learned from at most `FIT_ROWS` rows,
drawn by the seed. E is rounded to half precision, as files keep it: a block takes 10 MB at most. Rows are encoded `CHUNK` at
a time, so memory does not grow with the texts. A text without a known term is a row of zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.extmath import randomized_svd

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.protocol import Block, Content, State

WIDTH = 256
"""Largest number of directions."""
TERMS = 20_000
FIT_ROWS = 20_000
CHUNK = 2048

WORDS, CHARS = "words", "chars"
OPTIONS: dict[str, dict[str, Any]] = {
    WORDS: {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    CHARS: {"analyzer": "char_wb", "ngram_range": (2, 5)},
}
_ITERATIONS = 5  # of the randomised SVD
_SMALLEST = 1e-5  # singular values, divided by the largest, below which a direction is rounding


def vectorizer(terms: str, **given: Any) -> TfidfVectorizer:
    """The scikit-learn vectorizer of a kind of terms."""
    return TfidfVectorizer(**OPTIONS[terms], sublinear_tf=True, dtype=np.float32, **given)


@dataclass(frozen=True)
class TfidfEncoder:
    """TF-IDF of the texts in some columns, read as one text, in its main directions."""

    columns: tuple[str, ...]
    terms: str = WORDS
    seed: int = 0
    width: int = WIDTH

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedTfidf":
        """Learn vocabulary, idf and directions."""
        n = len(content)
        if n > FIT_ROWS:
            content = content.part(np.sort(np.random.default_rng(self.seed).choice(n, FIT_ROWS, replace=False)))
        texts = content.texts(self.columns)
        progress(f"learning {self.terms}", 0, len(texts))
        made = vectorizer(self.terms, max_features=TERMS, min_df=2 if len(texts) > self.width else 1)
        try:
            T = made.fit_transform(texts)
        except ValueError:  # no term at all, or none in two rows
            made = vectorizer(self.terms, max_features=TERMS)
            try:
                T = made.fit_transform(texts)
            except ValueError:
                return FittedTfidf(self.columns, self.terms, (), np.empty(0, np.float32), np.empty((0, 0), np.float32))
        E = _directions(T, self.width, self.seed)
        progress(f"learning {self.terms}", len(texts), len(texts))
        words = tuple(str(term) for term in made.get_feature_names_out())
        return FittedTfidf(self.columns, self.terms, words, made.idf_.astype(np.float32), E)


def _directions(T: csr_matrix, most: int, seed: int) -> Block:
    """(v, width) right singular vectors of T, largest singular value first."""
    n, v = T.shape
    _, s, V = randomized_svd(T, min(most, n, v), n_iter=_ITERATIONS, random_state=seed)
    kept = s > _SMALLEST * max(float(s[0]), float(np.finfo(np.float32).tiny))
    return np.ascontiguousarray(V[kept].T.astype(np.float16), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class FittedTfidf:
    """Vocabulary, idf and directions."""

    columns: tuple[str, ...]
    terms: str
    vocabulary: tuple[str, ...]
    """(v,) the terms, sorted."""
    idf: NDArray[np.float32]
    """(v,)"""
    E: Block
    """(v, width)"""

    @property
    def name(self) -> str:
        """What people read."""
        return f"{self.terms} of {', '.join(self.columns)}"

    @property
    def group(self) -> str:
        """Words and characters of one text are one group."""
        return f"tfidf of {', '.join(self.columns)}"

    @property
    def width(self) -> int:
        """Columns of the block; 0 where no text had a term."""
        return int(self.E.shape[1])

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width)"""
        n = len(content)
        B = np.zeros((n, self.width), dtype=np.float32)
        for start in range(0, n if self.width else 0, CHUNK):
            part = content.part(slice(start, start + CHUNK))
            B[start : start + CHUNK] = self._vectorizer.transform(part.texts(self.columns)) @ self.E
            progress(f"encoding {self.name}", min(start + CHUNK, n), n)
        return B

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        made = vectorizer(self.terms, vocabulary={term: k for k, term in enumerate(self.vocabulary)})
        made.idf_ = self.idf
        return made

    def state(self) -> State:
        """What a file keeps."""
        facts = {"columns": list(self.columns), "terms": self.terms}
        return State(
            "tfidf", {"vocabulary": packed(self.vocabulary), "idf": self.idf, "E": self.E.astype(np.float16)}, facts
        )

    @classmethod
    def of_state(cls, state: State) -> "FittedTfidf":
        """From what `state` gave; anything else is refused."""
        words, idf, E = unpacked(state.arrays["vocabulary"]), state.arrays["idf"], state.arrays["E"]
        terms = str(state.facts["terms"])
        if terms not in OPTIONS or E.ndim != 2 or not len(words) == len(set(words)) == len(idf) == len(E):
            raise InvalidInputError(
                f"{len(words)} terms of kind {terms!r} with idf of shape {idf.shape} and directions of shape {E.shape}; "
                "expected one of each a term",
                code="encoder",
            )
        columns = tuple(str(column) for column in state.facts["columns"])
        return cls(columns, terms, words, idf.astype(np.float32), np.ascontiguousarray(E, dtype=np.float32))


def packed(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Texts as one array of bytes (UTF-8, each followed by a zero byte; zeros within a text become two-byte forms).

    An array of NumPy's own texts would take four bytes a character of the longest for each of them.

    >>> unpacked(packed(["a", "", "ß\\0"]))
    ('a', '', 'ß\\x00')
    """
    return np.frombuffer(
        b"".join(text.encode("utf-8", "surrogatepass").replace(b"\0", _ZERO) + b"\0" for text in texts), dtype=np.uint8
    )


def unpacked(raw: NDArray[Any]) -> tuple[str, ...]:
    """What was `packed`."""
    whole = np.ascontiguousarray(raw, dtype=np.uint8).tobytes()
    return tuple(one.replace(_ZERO, b"\0").decode("utf-8", "surrogatepass") for one in whole.split(b"\0")[:-1])


_ZERO = b"\xc0\x80"  # never occurs in UTF-8
