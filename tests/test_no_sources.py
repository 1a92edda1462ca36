"""Campaigns without any source: the model learns from trusted samples and answers alone."""

import numpy as np

from labelchef import LabelCleaner


def test_trusted_samples_and_answers_are_enough() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = rng.normal(size=(400, 8)) + 2.0 * np.eye(3, 8)[y]
    cleaner = LabelCleaner(budget=20, batch_size=10).fit(X[:300], X_val=X[300:], y_val=y[300:], classes=[0, 1, 2])
    result = cleaner.run(lambda batch: y[batch.indices])
    assert result.stopped_because == "budget spent"
    assert cleaner.choice_ is not None
    assert cleaner.choice_.gamma == 0.0
    assert len(cleaner.sources_) == 0
    last = result.history.iloc[-1]
    assert abs(last["val_accuracy"] - last["val_no_weak_accuracy"]) < 0.03
    assert np.mean(result.model.predict(X[:300]) == y[:300]) > 0.8
