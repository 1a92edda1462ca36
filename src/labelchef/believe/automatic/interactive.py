"""Interactive Weak Supervision: rules are proposed one after the other, and a person says of each whether it is useful.

B. Boecking, W. Neiswanger, E. P. Xing, A. Dubrawski: Interactive Weak Supervision: Learning Useful Heuristics for Data
Labeling. ICLR 2021 (arXiv:2012.06046). Own implementation.

Rule j of R votes for class c_j on the rows that have the word w_j: V words, n training rows, C classes, R ≤ V C. Answers u_j are
1 (useful: right clearly more often than not), 0 (not useful), or "don't know".

**What is known of a rule**, x_j (d,):

    e_w   (k,)   the word: row w of the coverage matrix (V, n), scaled to unit length and projected by SVD
    x_j = [1, log-coverage of w_j, evidence of trusted rows, (onehot(c_j) − 1/C) ⊗ e_w]

So an answer for a word and a class says something about similar words, and the opposite about the other classes. Evidence of
trusted rows is not in the paper: it orders the proposals before anything is answered,

    t_j = log[(right_j + s f_c) / (wrong_j + s (1 − f_c))] − log[f_c / (1 − f_c)],   s = 2, f_c the share of class c_j

and is 0 where no trusted row has the word, or where there are none. So rules that fit the trusted rows by chance are proposed
first, and the votes of useful rules on trusted rows look better than they are.

**Model of usefulness.** Bayesian logistic regression with the approximation of Laplace (the paper: bagged neural networks):

    w* = argmin  −Σ_answered log P(u_j | x_jᵀ w) + 1/2 (w − w0)ᵀ Λ (w − w0),     H the Hessian there
    x_jᵀ w ~ N(m_j, s_j²),   m_j = x_jᵀ w*,   s_j² = x_jᵀ H⁻¹ x_j
    μ_j = E σ(x_jᵀ w), by quadrature of Gauss and Hermite

w0 is 1 for the evidence of trusted rows, −1 for the constant (most rules are useless) and 0 elsewhere. Nothing is drawn at
random, except the order among equals, which is that of the seed.

**Which rule next.** argmax μ_j³ · new_j, where new_j counts the rows that it matches and on which no useful rule votes yet; or
with `active_search` argmax μ_j, the paper's IWS-AS. Active search finds most useful rules, but many of them match the same rows:
on one split of comments 47 of 50 were useful and voted on 16 % of the rows, by the default 33 on 79 %. A word that has a useful
rule is not proposed for other classes. The final set is what the person found useful.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds
from scipy.special import expit
from sklearn.preprocessing import normalize

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.believe.automatic.words import Words
from labelchef.believe.rules import Keyword

_LEAST, _FEW, _LEAST_OF_FEW = 10, 1000, 5
"""A word is in at least so many training rows; where there are few rows, in fewer."""
_MOST_WORDS = 1000
_DIMENSIONS = 40
"""k"""
_STRENGTH = 2.0
"""s"""
_PRECISION = 5.0
"""Λ of the word's part, where an entry of e has the size of 1."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


@dataclass(frozen=True)
class Proposal:
    """A rule with what a person should see before the answer."""

    rule: Keyword
    probability: float
    """μ: how probable it is, after the answers so far, that the rule is useful."""
    rows: tuple[int, ...]
    """Training rows that it matches, at most as many as asked for; the first ones of an order by the seed."""
    matched: int
    """Training rows that it matches."""
    coverage: float
    """… as a share."""
    new: int
    """Of these, rows that no useful rule votes on yet."""
    conflicts: int
    """Of these, rows on which a useful rule votes for another class."""
    trusted_matched: int
    trusted_right: int
    """Trusted rows that it matches, and that have its class."""


class Proposals:
    """Rules to propose, and what the answers say of them.

    >>> texts = ["win money now", "win money today", "see you today", "see you soon"] * 5
    >>> proposals = Proposals(texts, ["ham", "spam"])
    >>> first = proposals.next()
    >>> proposals.tell(first.rule, None)
    >>> proposals.next().rule == first.rule
    False
    """

    def __init__(
        self,
        texts: Sequence[str],
        classes: Sequence[str],
        *,
        column: str = "text",
        trusted_texts: Sequence[str] = (),
        trusted_labels: Sequence[str] = (),
        active_search: bool = False,
        seed: int = 0,
    ) -> None:
        self.classes, self.seed, self.active_search = tuple(classes), seed, active_search
        n, C = len(texts), len(self.classes)
        least = max(_LEAST if n >= _FEW else _LEAST_OF_FEW, n // 200)
        words = Words.of(texts, least=least, most=_MOST_WORDS)
        if C < 2:
            raise InvalidInputError(f"the classes are {list(classes)}; expected at least two", code="classes")
        if not words.names:
            raise InvalidInputError(
                f"no word is in at least {least} of the {n} texts; give more texts", code="no_rules"
            )
        rng = np.random.default_rng([seed, 41])
        self.words = words.names
        self.presence = words.presence(texts).astype(np.int64)
        self.rules = tuple(
            Keyword(f"{word} → {label}", column, label, (word,)) for word in self.words for label in self.classes
        )
        self._place = {(rule.words[0], rule.label): j for j, rule in enumerate(self.rules)}
        self._word_of = np.repeat(np.arange(len(self.words)), C)
        self._class_of = np.tile(np.arange(C), len(self.words))
        self._order = rng.permutation(len(self.rules))
        self._shown = rng.permutation(n)
        self._class_counts, self._trusted_counts = self._seen(words, trusted_texts, trusted_labels)
        self.features = self._features(_projected(self.presence, rng))
        self.answers: dict[int, bool | None] = {}
        """Rule → useful, not useful, None for "don't know", in the order of the answers."""
        self._belief: Float64s | None = None

    # what a person sees

    def next(self, examples: int = 5) -> Proposal:
        """The rule to show next. Until it is answered, it is the same one."""
        open_ = self._open()
        if not open_.any():
            raise InvalidInputError("every rule has been answered; there is nothing left to propose", code="no_rules")
        mean = self.belief()
        new = (self.presence.T @ (self._useful_votes().sum(axis=1) == 0).astype(np.int64))[self._word_of]
        score = mean if self.active_search else mean**3 * new
        score = np.where(open_, score, -np.inf)[self._order]
        return self.proposal(self.rules[int(self._order[int(score.argmax())])], examples)

    def proposal(self, rule: Keyword, examples: int = 5) -> Proposal:
        """Any rule of the family, as `next` would show it."""
        j = self._index(rule)
        word, c = self._word_of[j], self._class_of[j]
        has = self.presence[:, [word]].toarray().ravel() > 0
        votes = self._useful_votes()
        other = votes.sum(axis=1) - votes[:, c]
        first = self._shown[has[self._shown]][:examples]
        trusted = self._trusted_counts[word]
        return Proposal(
            rule, float(self.belief()[j]), tuple(map(int, first)), int(has.sum()), float(has.mean()),
            int((has & (votes.sum(axis=1) == 0)).sum()), int((has & (other > 0)).sum()),
            int(trusted.sum()), int(trusted[c]),
        )  # fmt: skip

    def tell(self, rule: Keyword, useful: bool | None) -> None:
        """The answer of a person; None for "don't know". A second answer replaces the first."""
        self.answers[self._index(rule)] = useful
        self._belief = None

    def chosen(self) -> tuple[Keyword, ...]:
        """The rules that were found useful."""
        return tuple(self.rules[j] for j in self._useful())

    # what is kept

    def state(self) -> dict[str, Any]:
        """Plain JSON values: the seed and the answers; texts are not in it."""
        told = [
            {"word": self.rules[j].words[0], "label": self.rules[j].label, "useful": useful}
            for j, useful in self.answers.items()
        ]
        return {"version": 1, "seed": self.seed, "answers": told}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the answers of a state, except for words that are no longer among the rules."""
        for one in state["answers"]:
            if (one["word"], one["label"]) in self._place:
                self.answers[self._place[one["word"], one["label"]]] = one["useful"]
        self._belief = None

    # the model

    def belief(self) -> Float64s:
        """μ (R,)"""
        if self._belief is None:
            told = {j: answer for j, answer in self.answers.items() if answer is not None}
            u, words = np.array(list(told.values()), dtype=np.float64), self.features.shape[1] - 3
            w0, precision = np.r_[-1.0, 0.0, 1.0, np.zeros(words)], np.r_[0.25, 1.0, 4.0, np.full(words, _PRECISION)]
            w, H = _laplace(self.features[list(told)], u, w0, precision)
            spread = np.sqrt((self.features * np.linalg.solve(H, self.features.T).T).sum(axis=1))
            values = expit((self.features @ w)[:, None] + spread[:, None] * _NODES)
            # the last bits depend on where arrays lie in memory, and would decide between rules that are equal
            self._belief = np.asarray((values @ (_WEIGHTS / _WEIGHTS.sum())).round(9))
        return self._belief

    def _features(self, embedded: Float64s) -> Float64s:
        """x (R, d) from words e (V, k)."""
        C, (V, k) = len(self.classes), embedded.shape
        scale = np.sqrt(k)  # unit vectors: an entry has the size of 1
        word_part = np.einsum("cb,vk->vcbk", np.eye(C) - 1 / C, embedded * scale).reshape(V * C, C * k)
        coverage = np.log(self.presence.mean(axis=0))
        coverage = (coverage - coverage.mean()) / max(float(coverage.std()), 1e-12)
        f = (self._class_counts + 1) / (self._class_counts + 1).sum()
        right, seen = self._trusted_counts, self._trusted_counts.sum(axis=1, keepdims=True)
        odds = np.log((right + _STRENGTH * f) / (seen - right + _STRENGTH * (1 - f)))
        evidence = odds - np.log(f / (1 - f))
        return np.column_stack([np.ones(V * C), coverage[self._word_of], evidence.ravel(), word_part])

    def _seen(self, words: Words, texts: Sequence[str], labels: Sequence[str]) -> tuple[Ints, Ints]:
        """Trusted rows by their class (C,), and those (V, C) that have the word."""
        known, names = (np.array(said, dtype=object) for said in (labels, self.classes))
        onehot = (known[:, None] == names).astype(np.int64)
        return onehot.sum(axis=0), words.presence(texts).astype(np.int64).T @ onehot

    def _useful(self) -> list[int]:
        return [j for j, answer in self.answers.items() if answer]

    def _open(self) -> Bools:
        """(R,) rules that may be proposed."""
        open_ = ~np.isin(self._word_of, self._word_of[self._useful()])
        open_[list(self.answers)] = False
        return open_

    def _useful_votes(self) -> Ints:
        """(n, C) votes of the rules found useful."""
        onehot = np.zeros((len(self.words), len(self.classes)), dtype=np.int64)
        onehot[self._word_of[self._useful()], self._class_of[self._useful()]] = 1
        return np.asarray(self.presence @ onehot)

    def _index(self, rule: Keyword) -> int:
        j = self._place.get((rule.words[0] if len(rule.words) == 1 else "", rule.label))
        if j is None:
            raise InvalidInputError(
                f"the rule {rule.name!r} was not proposed; expected one that `next` gave", code="unknown_rule"
            )
        return j


def _laplace(X: Float64s, u: Float64s, start: Float64s, precision: Float64s) -> tuple[Float64s, Float64s]:
    """The optimum w* (d,) and its Hessian (d, d), by Newton steps that are halved while they do not lower the objective."""

    def value(w: Float64s) -> float:
        a = X @ w
        return float(np.logaddexp(0, a).sum() - u @ a + 0.5 * precision @ (w - start) ** 2)

    w = start.copy()
    for _ in range(100):
        P = expit(X @ w)
        gradient = X.T @ (P - u) + precision * (w - start)
        H = (X * (P * (1 - P))[:, None]).T @ X + np.diag(precision)
        if np.abs(gradient).max(initial=0.0) < 1e-9:
            break
        step, here, size = np.linalg.solve(H, gradient), value(w), 1.0
        while value(w - size * step) > here and size > 1e-6:
            size /= 2
        w = w - size * step
    return w, H


def _projected(presence: Any, rng: np.random.Generator) -> Float64s:
    """e (V, k): coverage vectors of the words along their k leading singular directions, scaled to unit length."""
    rows = normalize(presence.T.astype(np.float64))
    k = min(_DIMENSIONS, min(rows.shape) - 1)
    if k < 1:
        return np.ones((rows.shape[0], 1))
    U, values, _ = svds(rows, k=k, v0=rng.normal(size=min(rows.shape)))
    return np.asarray(normalize(U * values))
