"""Features wherever they are: values, parts, blocks, identity, errors."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.base.stopping_work import StoppedWorkError, stoppable
from labelchef.data.campaign_data import as_rows
from labelchef.model.features import ArrayFeatures, Features, check_finite, is_streamed, open_features
from labelchef.model.features.npy import NpyFeatures, behind_map
from labelchef.model.features.reading import Buffers, LocalFile

N, D = 1037, 37


def matrix(kind: str) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(N, D)).astype(kind)


def as_file(folder: Path, X: np.ndarray) -> Features:
    np.save(folder / "x.npy", X)
    return open_features(folder / "x.npy")


KINDS = ("float64", "float32", "float16")


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Features, Features, np.ndarray]:
    """The same matrix in a file and in memory, and its values."""
    X = matrix(request.param)
    return as_file(tmp_path, X), ArrayFeatures(X), X.astype(np.float64 if X.dtype == np.float64 else np.float32)


class TestValues:
    def test_blocks_hold_every_row_once_in_order(self, both: tuple[Features, Features, np.ndarray]) -> None:
        *features, values = both
        for one in features:
            for rows in (None, 64, 500, 10 * N):
                found = [(first, block.copy()) for first, block in one.blocks(rows=rows)]
                assert [first for first, _ in found] == list(range(0, N, rows or N))
                np.testing.assert_array_equal(np.concatenate([block for _, block in found]), values)

    def test_take_in_any_order_and_twice(self, both: tuple[Features, Features, np.ndarray]) -> None:
        *features, values = both
        rows = np.array([N - 1, 0, 5, 5, 6, 700, 3])
        for one in features:
            found = one.take(rows)
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values[rows])
            np.testing.assert_array_equal(one[::97], values[::97])
            np.testing.assert_array_equal(one[np.array([4, 2])], values[[4, 2]])
            assert one.take(np.empty(0, dtype=np.int64)).shape == (0, D)

    def test_a_part_counts_from_its_own_first_row(self, both: tuple[Features, Features, np.ndarray]) -> None:
        *features, values = both
        for one in features:
            part = one.part(100, 900).part(50, 60)
            assert part.shape == (10, D)
            assert len(part) == 10
            np.testing.assert_array_equal(part.take([9, 0]), values[[159, 150]])
            found = [(first, block) for first, block in part.blocks(2, 9, rows=4)]
            assert [first for first, _ in found] == [2, 6]
            np.testing.assert_array_equal(np.concatenate([block for _, block in found]), values[152:159])

    def test_pickled_it_reads_the_same(self, both: tuple[Features, Features, np.ndarray]) -> None:
        *features, values = both
        for one in features:
            one.take([0])
            again = pickle.loads(pickle.dumps(one.part(10, 30)))
            np.testing.assert_array_equal(again.take([19]), values[[29]])
            assert again.shape == (20, D)

    def test_the_identity_is_of_the_content(self, both: tuple[Features, Features, np.ndarray], tmp_path: Path) -> None:
        file, array, values = both
        assert file.identity == array.identity
        assert file.part(0, N).identity == file.identity
        assert file.part(0, 5).identity != file.identity
        assert ArrayFeatures(values[::-1]).identity != ArrayFeatures(values).identity

    def test_it_is_never_made_an_array_by_accident(self, both: tuple[Features, Features, np.ndarray]) -> None:
        with pytest.raises(InvalidInputError, match="take"):
            np.asarray(both[0])


class TestReading:
    def test_blocks_may_be_kept_and_memory_is_used_again(self, tmp_path: Path) -> None:
        X = matrix("float32")
        one = as_file(tmp_path, X)
        kept = [block[3:] for _, block in one.blocks(rows=64)]  # a view of each, all at once
        np.testing.assert_array_equal(
            np.concatenate(kept[:3]), np.concatenate([X[64 * k + 3 : 64 * k + 64] for k in range(3)])
        )
        buffers = Buffers()
        for _, block in one.blocks(rows=10, buffers=buffers):
            del block
        assert len(buffers._free) <= one.readers + 3

    def test_past_the_page_cache_it_reads_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        content = np.random.default_rng(0).integers(0, 256, 20_001).astype(np.uint8)
        path.write_bytes(content.tobytes())
        for direct in (False, True):
            file = LocalFile(path)
            file._direct_wanted = direct
            for offset, length in ((0, 20_001), (1, 20_000), (4096, 4096), (4097, 1), (20_000, 1), (8191, 2)):
                np.testing.assert_array_equal(
                    file.read(offset, length, Buffers()),
                    content[offset : offset + length],
                    err_msg=f"{offset} {direct}",
                )

    def test_a_map_that_was_changed_in_memory_only_is_not_read_from_its_file(self, tmp_path: Path) -> None:
        X = matrix("float32")
        np.save(tmp_path / "x.npy", X)
        kept, mapped = (np.load(tmp_path / "x.npy", mmap_mode="r+"), np.load(tmp_path / "x.npy", mmap_mode="c"))
        for one, read in ((kept, True), (mapped, False)):
            for shown in (one, np.asarray(one)[3:]):
                assert (behind_map(shown) is not None) == read
        mapped[0, 0] = np.nan
        with pytest.raises(InvalidInputError, match="finite"):
            as_rows(mapped, "X", None)

    def test_it_can_be_stopped(self, tmp_path: Path) -> None:
        one, seen = as_file(tmp_path, matrix("float16")), []

        def read() -> None:
            for first, _ in one.blocks(rows=10):
                seen.append(first)

        with stoppable(lambda: len(seen) >= 3), pytest.raises(StoppedWorkError):
            read()
        assert len(seen) == 3


class TestErrors:
    def test_not_finite_names_row_and_column(self, tmp_path: Path) -> None:
        for kind in ("float64", "float32", "float16"):
            X = matrix(kind)
            check_finite(ArrayFeatures(X))
            X[900, 7], X[901, 3] = np.inf, np.nan
            with pytest.raises(InvalidInputError, match=r"X\[900, 7\] is inf"):
                check_finite(as_file(tmp_path, X))
            with pytest.raises(InvalidInputError, match=r"X\[850, 7\] is inf"):
                check_finite(ArrayFeatures(X).part(50, N))

    def test_a_file_that_changes_is_refused_at_the_next_pass(self, tmp_path: Path) -> None:
        X = matrix("float32")
        one = as_file(tmp_path, X)
        passing = one.blocks(rows=500)
        next(passing)
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        with pytest.raises(InvalidInputError, match="changed while it is used: it was written since"):
            list(passing)
        with pytest.raises(InvalidInputError, match="changed") as error:
            next(one.blocks())
        assert error.value.code == "features_changed"
        np.save(tmp_path / "x.npy", X[:-1])
        with pytest.raises(InvalidInputError, match="bytes, and had"):
            next(one.blocks())
        (tmp_path / "x.npy").unlink()
        with pytest.raises(InvalidInputError, match=r"x\.npy cannot be read: No such file"):
            next(one.blocks())

    def test_a_copy_that_another_process_reads_may_be_of_another_time(self, tmp_path: Path) -> None:
        X = matrix("float32")
        path = tmp_path / "x.npy"
        sent = pickle.dumps(as_file(tmp_path, X))
        os.utime(path, ns=(1, 1))
        one = pickle.loads(sent)
        np.testing.assert_array_equal(np.concatenate([block for _, block in one.blocks(rows=500)]), X)
        os.utime(path, ns=(2, 2))
        with pytest.raises(InvalidInputError, match="it was written since"):
            one.check()
        np.save(path, X[:-1])
        with pytest.raises(InvalidInputError, match="bytes, and had"):
            pickle.loads(sent).check()
        path.unlink()
        with pytest.raises(InvalidInputError, match="No such file"):
            pickle.loads(sent).check()

    def test_a_file_that_is_cut_off(self, tmp_path: Path) -> None:
        X = matrix("float32")
        one = as_file(tmp_path, X)
        path = tmp_path / "x.npy"
        path.write_bytes(path.read_bytes()[:-1000])
        with pytest.raises(InvalidInputError, match="cut off or damaged"):
            open_features(path)
        with pytest.raises(InvalidInputError, match="ends at byte"):
            one.take([N - 1])

    @pytest.mark.parametrize(
        ("array", "said"),
        [
            (np.zeros(5, dtype=np.float32), r"has shape \(5,\)"),
            (np.zeros((5, 0), dtype=np.float32), "at least one of each"),
            (np.zeros((5, 2), dtype=np.int64), "type int64"),
            (np.asfortranarray(np.zeros((5, 2), dtype=np.float32)), "column by column"),
            (np.zeros((5, 2), dtype=">f4"), "another byte order"),
        ],
    )
    def test_what_cannot_be_streamed(self, array: np.ndarray, said: str, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(InvalidInputError, match=said):
            open_features(tmp_path / "x.npy")

    def test_int8_with_scales_of_version_02_is_refused_with_what_to_write_instead(self, tmp_path: Path) -> None:
        X, scales = matrix("float32").astype(np.int8), np.full((N, 1), 0.5, dtype=np.float32)
        np.save(tmp_path / "x.scales.npy", scales)
        assert is_streamed(tmp_path / "x.npy") is True
        with pytest.raises(
            InvalidInputError, match=r"int8; expected float64, float32 or float16.*\(X \* scales\)"
        ) as told:
            as_file(tmp_path, X)
        assert told.value.code == "features"
        as_file(tmp_path, (X * scales).astype(np.float16))

    def test_rows_that_are_not_there(self, tmp_path: Path) -> None:
        one = as_file(tmp_path, matrix("float16"))
        assert isinstance(one, NpyFeatures)
        for rows in ([N], [-1]):
            with pytest.raises(InvalidInputError, match="expected 0 to 1036"):
                one.take(rows)
        with pytest.raises(InvalidInputError, match="expected a part of its"):
            one.part(5, N + 1)
        with pytest.raises(InvalidInputError, match="missing"):
            open_features(tmp_path / "y.npy")
        with pytest.raises(InvalidInputError, match="cannot be opened as features"):
            open_features(tmp_path / "x.bin")
