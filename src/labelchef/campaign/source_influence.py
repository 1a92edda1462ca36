"""The influence of an answer through the whole learner: its own sample, the sources, the clean model.

The learner (`learner`) makes W from clean labels in three steps, with N rows, K clean and U weak ones:

    W_c = argmin Σ_K ℓ + (μ/2) ‖W‖²,    p = softmax(T X W_c)         the clean model, H_c its Hessian
    q   = source model (votes, p, clean labels)                      `sources.models`
    W   = argmin (1/N) [Σ_K ℓ(y_k) + γ Σ_U ℓ(q_i)] + (λ/2) ‖W‖²      the learner, H its Hessian

Let L be a loss at W with gradient g, V = H⁻¹ g and S = X V. A change of a belief, dq_k, changes N·L by γ S_k·dq_k. So an answer c
for sample i changes N·L, to first order, by the sum of

    direct    S_ic − (γ q_i + (1 − γ) P_i)·S_i              the sample itself: formula (A) of `core.influence` for q and γ
    sources   `answers` of `sources.adjoint` for Q̄ = γ S    the rates, and so all beliefs, with p as it is
    clean     S^c_ic − p̃_i·S^c_i                            W_c moves by −H_c⁻¹ x_i ⊗ (p̃_i − e_c), p̃ = softmax(X W_c), so

              W̄ = T Xᵀ ā,   V^c = H_c⁻¹ W̄,   S^c = X V^c     ā (N, C): derivatives of N·L by the logits of p, `logits` there

V is what an influence selector solves for anyway. The rest costs three sweeps over X (logits of W_c, Xᵀ ā, X V^c), one solve on
the clean rows, and a few passes over the votes; there is no loop over samples.

The choice (source model, γ, λ, μ, T) is taken as it is. Shapes: S, S^c, P, p, ā (N, C); V, V^c, W̄, g (D, C).
"""

import numpy as np

from labelchef.campaign.learner import Learner
from labelchef.core.contrasts import contrast, expand, with_reference
from labelchef.core.influence import InfluenceParts, influence_matrix
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Objective, Point
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s
from labelchef.engines import RowArray, RowLabels
from labelchef.sources.adjoint import adjoint
from labelchef.sources.models import make_source_model


def influence_parts(
    learner: Learner, objective: Objective, labels: LabelTable, point: Point, products: RowArray
) -> InfluenceParts:
    """The parts for every row and class, from S = X V (N, k) at `point`; rows that are clean already get a number too."""
    engine, choice = objective.engine, learner.choice
    S, A = with_reference(engine.host(products)), with_reference(engine.host(point.logits))
    direct = influence_matrix(S, probabilities(A), labels.Y, labels.weight)
    if choice is None or learner.belief is None:
        return InfluenceParts(direct, np.zeros_like(S), np.zeros_like(S))
    A_clean = learner.clean_logits(objective)
    evidence = learner.evidence(A_clean, labels.clean_ids)
    through = adjoint(make_source_model(choice.model), evidence, choice.gamma * learner.belief.spoken[:, None] * S)
    if not through.logits.any():
        return InfluenceParts(direct, through.answers, np.zeros_like(S))
    by_parameters = choice.temperature * _transposed_product(objective, through.logits)
    V = learner.clean_solve(objective, labels, by_parameters)
    S_clean = with_reference(engine.host(engine.sweep(objective.labels, W=contrast(V)).logits))
    clean = S_clean - np.einsum("ic,ic->i", probabilities(A_clean), S_clean)[:, None]
    return InfluenceParts(direct, through.answers, np.asarray(clean))


def _transposed_product(objective: Objective, M: Float64s) -> Float64s:
    """Xᵀ M (D, C) for rows M (N, C) that sum to zero: the gradient at logits of zero for the labels 1/C − M, one sweep."""
    engine, (n, C) = objective.engine, M.shape
    labels = RowLabels(1.0 / C - M, np.ones(n))
    sums = engine.sweep(labels, logits=engine.zeros(C - 1), gradient=True)
    assert sums.gradient is not None
    return np.asarray(expand(sums.gradient))
