"""Interactive Weak Supervision: rules are proposed one after the other, and a person says of each whether it is useful.

B. Boecking, W. Neiswanger, E. P. Xing, A. Dubrawski: Interactive Weak Supervision: Learning Useful Heuristics for Data
Labeling. ICLR 2021 (arXiv:2012.06046). Own implementation.

Rule j of R votes for class c_j on the rows that have the word w_j: V words, n training rows, C classes, R ≤ V C. Answers u_j are
1 (useful: right clearly more often than not), 0 (not useful), or "don't know".

**What is known of a rule**, x_j (d,):

    e_w   (k,)   the word: row w of the coverage matrix (V, n), scaled to unit length and projected by SVD; with item vectors
                 Z (n, D) (an encoded block) the mean of z_i − z̄ over the rows that have the word, projected likewise
    x_j = [1, log-coverage of w_j, evidence of trusted rows, (onehot(c_j) − 1/C) ⊗ e_w]

So an answer for a word and a class says something about similar words, and the opposite about the other classes. Evidence of
trusted rows is not in the paper: it orders the proposals before anything is answered,

    t_j = log[(right_j + s f_c) / (wrong_j + s (1 − f_c))] − log[f_c / (1 − f_c)],   s = 2, f_c the share of class c_j

and is 0 where no trusted row has the word, or where there are none. So rules that fit the trusted rows by chance are proposed
first, and the votes of useful rules on trusted rows look better than they are. `use_trusted=False` orders without trusted
rows, and finds fewer useful rules.

**Model of usefulness.** Bayesian logistic regression with the approximation of Laplace (the paper: bagged neural networks):

    w* = argmin  −Σ_answered log P(u_j | x_jᵀ w) + 1/2 (w − w0)ᵀ Λ (w − w0),     H the Hessian there
    x_jᵀ w ~ N(m_j, s_j²),   m_j = x_jᵀ w*,   s_j² = x_jᵀ H⁻¹ x_j
    μ_j = E σ(x_jᵀ w),  σ_j its standard deviation, both by quadrature of Gauss and Hermite

w0 is 1 for the evidence of trusted rows, −1 for the constant (most rules are useless) and 0 elsewhere. Nothing is drawn at
random, except the order among equals, which is that of the seed.

**Which rule next** (`acquisition`):

    coverage        argmax μ_j³ · new_j                  new_j: rows it matches on which no useful rule votes yet; the default
    active search   argmax μ_j                           (the paper's IWS-AS)
    straddle        argmax 1.96 σ_j − |μ_j − r|          (IWS-LSE), r = 0.5

Active search finds most useful rules, but many of them match the same rows: on one split of comments on videos 47 of 50 were
useful, and all together voted on 16 % of the rows; by `coverage` 33 were useful and voted on 79 %.

A word that has a useful rule is not proposed for other classes. **The final set** is what the person found useful (IWS-AS),
and with `predicted` also the rules of which μ_j ≥ r is believed, largest μ_j · coverage first, at most so many (IWS-LSE-a, -ac).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from scipy.special import expit

from labelchef.base.arrays import Bools, Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.believe.rules import Keyword
from labelchef.believe.words import Words

ACQUISITIONS = ("coverage", "active_search", "straddle")
THRESHOLD = 0.5
"""r"""

_STRENGTH = 2.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


@dataclass(frozen=True)
class ProposalOptions:
    """Which rules there are, and how they are proposed."""

    least: int = 10
    """A word is in at least so many training rows, and in half a percent of them."""
    most_words: int = 1000
    """V: the most frequent words, if there are more."""
    dimensions: int = 40
    """k"""
    acquisition: str = "coverage"
    use_trusted: bool = True
    precision: float = 5.0
    """Λ of the word's part, where an entry of e has the size of 1."""

    def __post_init__(self) -> None:
        if self.acquisition not in ACQUISITIONS:
            raise InvalidInputError(
                f"acquisition is {self.acquisition!r}; expected one of: {', '.join(ACQUISITIONS)}", code="acquisition"
            )


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
    """Proposes rules, and learns from the answers which are useful.

    >>> texts = ["win money now", "win money today", "see you today", "see you soon"] * 5
    >>> proposals = Proposals(texts, ["ham", "spam"], options=ProposalOptions(least=5))
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
        items: Floats | None = None,
        options: ProposalOptions | None = None,
        seed: int = 0,
    ) -> None:
        self.options = options or ProposalOptions()
        self.classes, self.column, self.seed = tuple(classes), column, seed
        _check(texts, self.classes, trusted_texts, trusted_labels, items)
        n, C = len(texts), len(self.classes)
        words = Words.of(texts, least=max(self.options.least, n // 200), most=self.options.most_words)
        if not words.names:
            raise InvalidInputError(
                f"no word is in at least {self.options.least} of the {n} texts; give more texts, or lower `least`",
                code="no_rules",
            )
        rng = np.random.default_rng([seed, 41])
        self.words = words.names
        self.presence = words.presence(texts)
        self.rules = tuple(
            Keyword(f"{word} → {label}", column, label, (word,)) for word in self.words for label in self.classes
        )
        self._place = {(rule.words[0], rule.label): j for j, rule in enumerate(self.rules)}
        self._word_of = np.repeat(np.arange(len(self.words)), C)
        self._class_of = np.tile(np.arange(C), len(self.words))
        self._order = rng.permutation(len(self.rules))
        self._shown = rng.permutation(n)
        self._counts = np.asarray(self.presence.sum(axis=0)).ravel().astype(np.int64)
        self._trusted_counts = self._seen(words, trusted_texts, trusted_labels)
        embedded = (
            _of_coverage(self.presence, self.options, rng)
            if items is None
            else _of_items(self.presence, items, self.options, rng)
        )
        self.features = self._features(embedded, n)
        self.answers: dict[int, bool | None] = {}
        """Rule → useful, not useful, None for "don't know", in the order of the answers."""
        self._belief: tuple[Float64s, Float64s] | None = None

    # what a person sees

    def next(self, examples: int = 5) -> Proposal:
        """The rule to show next. Until it is answered, it is the same one."""
        open_ = self._open()
        if not open_.any():
            raise InvalidInputError("every rule has been answered; there is nothing left to propose", code="no_rules")
        mean, spread = self.belief()
        if self.options.acquisition == "straddle":
            score = 1.96 * spread - np.abs(mean - THRESHOLD)
        else:
            score = mean if self.options.acquisition == "active_search" else mean**3 * self._new()
        score = np.where(open_, score, -np.inf)[self._order]
        return self.proposal(self.rules[int(self._order[int(score.argmax())])], examples)

    def proposal(self, rule: Keyword, examples: int = 5) -> Proposal:
        """Any rule of the family, as `next` would show it."""
        j = self._index(rule)
        word, c = self._word_of[j], self._class_of[j]
        has = np.asarray(self.presence[:, [word]].todense()).ravel() > 0
        votes = self._useful_votes()
        other = votes.sum(axis=1) - votes[:, c]
        first = self._shown[has[self._shown]][:examples]
        matched, right = self._trusted_counts[word].sum(), self._trusted_counts[word, c]
        n_matched = int(has.sum())
        return Proposal(
            rule, float(self.belief()[0][j]), tuple(map(int, first)), n_matched, n_matched / len(has),
            int((has & (votes.sum(axis=1) == 0)).sum()), int((has & (other > 0)).sum()), int(matched), int(right),
        )  # fmt: skip

    def tell(self, rule: Keyword, useful: bool | None) -> None:
        """The answer of a person; None for "don't know". A second answer replaces the first."""
        if useful not in (True, False, None):
            raise InvalidInputError(
                f"useful is {useful!r}; expected true, false, or none for 'don't know'", code="useful"
            )
        self.answers[self._index(rule)] = useful
        self._belief = None

    def chosen(self, *, predicted: bool = False, most: int | None = None) -> tuple[Keyword, ...]:
        """The rules that were found useful; with `predicted` also those that are believed to be, at most `most` in all."""
        useful = [j for j, answer in self.answers.items() if answer]
        if predicted:
            mean = self.belief()[0]
            value = np.where(self._open() & (mean >= THRESHOLD), mean * self._counts[self._word_of], -np.inf)
            taken = set(self._word_of[useful].tolist())
            for j in self._order[np.argsort(-value[self._order], kind="stable")]:
                if value[j] == -np.inf or (most is not None and len(useful) >= most):
                    break
                if int(self._word_of[j]) not in taken:
                    taken.add(int(self._word_of[j]))
                    useful.append(int(j))
        return tuple(self.rules[j] for j in useful)

    # what is kept

    def state(self) -> dict[str, Any]:
        """Plain JSON values: the seed and the answers; texts are not in it."""
        told = [
            {"word": self.rules[j].words[0], "label": self.rules[j].label, "useful": useful}
            for j, useful in self.answers.items()
        ]
        return {"version": 1, "seed": self.seed, "acquisition": self.options.acquisition, "answers": told}

    def restore(self, state: Mapping[str, Any]) -> int:
        """Take over the answers of a state; how many of them are about words that are no longer among the rules."""
        if state.get("version") != 1 or not isinstance(state.get("answers"), list):
            raise InvalidInputError(
                "the kept answers are not in a form that this version reads; expected version 1 with answers",
                code="state",
            )
        lost = 0
        for one in state["answers"]:
            j = self._place.get((one["word"], one["label"]))
            if j is None:
                lost += 1
            else:
                self.answers[j] = one["useful"]
        self._belief = None
        return lost

    # the model

    def belief(self) -> tuple[Float64s, Float64s]:
        """μ (R,) and σ (R,)"""
        if self._belief is None:
            told = [(j, answer) for j, answer in self.answers.items() if answer is not None]
            rows = np.array([j for j, _ in told], dtype=np.int64)
            useful = np.array([answer for _, answer in told], dtype=np.float64)
            w, H = _laplace(self.features[rows], useful, *self._prior())
            mean = self.features @ w
            spread = np.sqrt((self.features * np.linalg.solve(H, self.features.T).T).sum(axis=1))
            values = expit(mean[:, None] + spread[:, None] * _NODES)
            share = _WEIGHTS / _WEIGHTS.sum()
            first = values @ share
            second = np.maximum((values**2) @ share - first**2, 0.0)
            # the last bits depend on where arrays lie in memory, and would decide between rules that are equal
            self._belief = first.round(9), np.sqrt(second).round(9)
        return self._belief

    def _prior(self) -> tuple[Float64s, Float64s]:
        """w0 (d,) and the diagonal of Λ (d,)"""
        d = self.features.shape[1]
        start, precision = np.zeros(d), np.full(d, float(self.options.precision))
        start[0], start[2] = -1.0, 1.0
        precision[:3] = 0.25, 1.0, 4.0
        return start, precision

    def _features(self, embedded: Float64s, n: int) -> Float64s:
        C = len(self.classes)
        contrast = np.eye(C) - 1 / C
        scale = np.sqrt(embedded.shape[1])  # unit vectors: an entry has the size of 1
        word_part = (contrast[self._class_of][:, :, None] * embedded[self._word_of][:, None, :] * scale).reshape(
            len(self.rules), -1
        )
        coverage = np.log(self._counts / n)
        coverage = (coverage - coverage.mean()) / max(float(coverage.std()), 1e-12)
        return np.column_stack([np.ones(len(self.rules)), coverage[self._word_of], self._evidence(), word_part])

    def _evidence(self) -> Float64s:
        """t (R,)"""
        counts = self._trusted_counts.astype(np.float64)
        if not self.options.use_trusted or self._class_counts.sum() == 0:
            return np.zeros(len(self.rules))
        shares = (self._class_counts + 1) / (self._class_counts + 1).sum()
        right, wrong = counts, counts.sum(axis=1, keepdims=True) - counts
        odds = np.log((right + _STRENGTH * shares) / (wrong + _STRENGTH * (1 - shares)))
        return np.asarray((odds - np.log(shares / (1 - shares))).ravel())

    def _seen(self, words: Words, texts: Sequence[str], labels: Sequence[str]) -> Ints:
        """(V, C) trusted rows that have the word, by their class."""
        ids = {label: c for c, label in enumerate(self.classes)}
        y = np.array([ids[label] for label in labels], dtype=np.int64)
        self._class_counts = np.bincount(y, minlength=len(self.classes))
        onehot = csr_array((np.ones(len(y), dtype=np.int64), (y, np.arange(len(y)))), shape=(len(self.classes), len(y)))
        return np.asarray((onehot @ words.presence(texts).astype(np.int64)).todense()).T

    def _open(self) -> Bools:
        """(R,) rules that may be proposed."""
        open_ = np.ones(len(self.rules), dtype=bool)
        open_[list(self.answers)] = False
        settled = [self._word_of[j] for j, answer in self.answers.items() if answer]
        open_[np.isin(self._word_of, settled)] = False
        return open_

    def _useful_votes(self) -> Ints:
        """(n, C) votes of the rules found useful."""
        useful = [j for j, answer in self.answers.items() if answer]
        onehot = np.zeros((len(self.words), len(self.classes)), dtype=np.int64)
        onehot[self._word_of[useful], self._class_of[useful]] = 1
        return np.asarray(self.presence.astype(np.int64) @ onehot)

    def _new(self) -> Ints:
        """(R,) rows that a rule matches and no useful rule votes on."""
        left = (self._useful_votes().sum(axis=1) == 0).astype(np.int64)
        return np.asarray(self.presence.T.astype(np.int64) @ left)[self._word_of]

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


def _of_coverage(presence: Any, options: ProposalOptions, rng: np.random.Generator) -> Float64s:
    """(V, k): coverage vectors of the words, scaled to unit length and projected."""
    table = presence.T.astype(np.float64)
    lengths = np.sqrt(np.maximum(np.asarray(table.sum(axis=1)).ravel(), 1.0))
    return _projected(csr_array(table / lengths[:, None]), options, rng)


def _of_items(presence: Any, items: Floats, options: ProposalOptions, rng: np.random.Generator) -> Float64s:
    """(V, k): mean of the item vectors of the rows that have the word, projected."""
    Z = np.asarray(items, dtype=np.float64)
    counts = np.maximum(np.asarray(presence.sum(axis=0)).ravel(), 1.0)
    means = (presence.T.astype(np.float64) @ (Z - Z.mean(axis=0))) / counts[:, None]
    return _projected(_unit(means), options, rng)


def _projected(rows: Any, options: ProposalOptions, rng: np.random.Generator) -> Float64s:
    """(V, k): the rows along their k leading singular directions, scaled to unit length."""
    k = min(options.dimensions, min(rows.shape) - 1)
    if k < 1:
        return np.ones((rows.shape[0], 1))
    U, values, _ = svds(rows, k=k, v0=rng.normal(size=min(rows.shape)))
    return _unit(U * values)


def _unit(rows: Float64s) -> Float64s:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _check(
    texts: Sequence[str],
    classes: tuple[str, ...],
    trusted_texts: Sequence[str],
    trusted_labels: Sequence[str],
    items: Floats | None,
) -> None:
    if len(set(classes)) < 2:
        raise InvalidInputError(f"the classes are {list(classes)}; expected at least two", code="classes")
    if len(trusted_texts) != len(trusted_labels):
        raise InvalidInputError(
            f"{len(trusted_texts)} trusted texts with {len(trusted_labels)} labels; expected a label for each",
            code="trusted",
        )
    unknown = sorted(set(trusted_labels) - set(classes))
    if unknown:
        raise InvalidInputError(
            f"a trusted row has the class {unknown[0]!r}; expected one of: {', '.join(classes)}", code="trusted"
        )
    if items is not None and (items.ndim != 2 or len(items) != len(texts)):
        raise InvalidInputError(
            f"item vectors have shape {items.shape}; expected ({len(texts)}, d), a row for each text", code="items"
        )
