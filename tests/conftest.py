import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("labelchef", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("labelchef")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)


@pytest.fixture
def data_folder() -> Path:
    folder = Path(os.environ.get("LABELCHEF_DATA") or "no-such-folder")
    if not folder.is_dir():
        pytest.skip("no real data sets here; set LABELCHEF_DATA to their folder")
    return folder
