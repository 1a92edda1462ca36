"""The pictures of the docs: each one that a page names is made by `tests.web.screenshots`, and kept small."""

import re
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from tests.web import screenshots
from tests.web.conftest import chromium

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "screenshots"


def test_every_picture_of_the_docs_can_be_made_again(tmp_path: Path) -> None:
    if chromium() is None:
        pytest.skip("no Chromium here; tools/system-parts installs it")
    made = set(screenshots.make(tmp_path))
    texts = [page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    named = {name for text in texts for name in re.findall(r"screenshots/([\w-]+\.png)", text)}
    assert named == made, "the docs name what `make screenshots` makes"
    assert {path.name for path in KEPT.iterdir()} == made, "make screenshots"
    for name in made:
        with Image.open(tmp_path / name) as new, Image.open(KEPT / name) as kept:
            assert new.size == kept.size, name
            assert max(ImageStat.Stat(new.convert("L")).stddev) > 5, f"{name} is empty"
        assert (KEPT / name).stat().st_size < 150_000, name
