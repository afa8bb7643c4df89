"""Whole tables through a tokenizer: the same codes as by hand, whatever the format, the batches and the engine."""

import io
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ghrq import Tokenizer, cli
from ghrq.data.tables import manifest, open_codes, open_table
from ghrq.ids.collisions import resolve_append
from ghrq.system import progress
from ghrq.system.errors import UserError
from ghrq.system.progress import PlainProgress
from ghrq.tokenizer import bulk

ROWS, DIM, STAGES, CODES, BATCH = 1500, 6, 2, 16, 100
IDS = [f"item-{i:04d}" for i in range(ROWS)]


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    groups = random.standard_normal((20, DIM))
    return (groups[random.integers(0, 20, ROWS)] + 0.3 * random.standard_normal((ROWS, DIM))).astype(np.float32)


@pytest.fixture(scope="module")
def tokenizer(vectors):
    return Tokenizer(num_stages=STAGES, codebook_size=CODES, seed=0).fit(vectors)


def write(path, vectors, ids=IDS):
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    pq.write_table(pa.table({"item_id": ids, "embedding": flat}), path, row_group_size=130)
    return path


@pytest.fixture
def table(tmp_path, vectors):
    return open_table(write(tmp_path / "items.parquet", vectors), "embedding", "item_id")


@pytest.fixture
def expected(tokenizer, vectors):
    return np.concatenate([tokenizer.encode(vectors[i : i + BATCH]) for i in range(0, ROWS, BATCH)])


def test_encode_gives_the_codes_of_every_row(tokenizer, table, expected):
    codes = bulk.encode(tokenizer, table, batch=BATCH)
    assert codes.dtype == np.uint8  # of 16 codes
    np.testing.assert_array_equal(codes, expected)


def test_encode_refuses_vectors_of_another_size(tokenizer, tmp_path, vectors):
    table = open_table(write(tmp_path / "items.parquet", vectors[:, :4].copy()), "embedding")
    match = r"items.parquet: column 'embedding' has vectors of 4 numbers, the tokenizer was fitted on 6: give"
    with pytest.raises(UserError, match=match):
        bulk.encode(tokenizer, table)


@pytest.mark.parametrize("job", ["sample", "encode"])
def test_duplicate_ids_are_found(job, tokenizer, tmp_path, vectors):
    ids = list(IDS)
    ids[1200] = ids[7]
    table = open_table(write(tmp_path / "items.parquet", vectors, ids), "embedding", "item_id")
    with pytest.raises(UserError, match=r"rows 7 and 1200 \(counted from 0\) have the same item_id 'item-0007'"):
        bulk.sample(table, CODES) if job == "sample" else bulk.encode(tokenizer, table)


def test_a_small_table_is_not_sampled(table, vectors):
    np.testing.assert_array_equal(bulk.sample(table, CODES), vectors)


def test_a_large_table_is_sampled_at_random(table, vectors, monkeypatch):
    monkeypatch.setattr(bulk, "_SAMPLE_ROWS", 200)
    samples = [bulk.sample(table, CODES, seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(samples[0], samples[1])
    assert not np.array_equal(samples[0], samples[2])
    places = {row.tobytes(): i for i, row in enumerate(vectors)}
    rows = [places[row.tobytes()] for row in samples[0]]
    assert len(rows) == 200
    assert rows == sorted(set(rows))
    assert ROWS * 0.4 < np.mean(rows) < ROWS * 0.6
    assert len(bulk.sample(table, 300)) == 300  # a code needs a vector


def test_fewer_rows_than_codes(table):
    with pytest.raises(UserError, match=r"1500 rows, fewer than the 1501 codes of a stage: give more rows, or --codes"):
        bulk.sample(table, 1501)


@pytest.mark.parametrize("rows", [4, 100, 10**6])
def test_append_is_the_same_part_by_part(rows, tokenizer, table, expected, monkeypatch):
    monkeypatch.setattr(bulk, "_APPEND_ROWS", rows)
    settled = bulk.resolve(expected.astype(np.uint8), "append", tokenizer, table)
    assert settled.dtype == np.int32
    np.testing.assert_array_equal(settled, resolve_append(torch.from_numpy(expected)).numpy())
    assert settled[:, -1].max() > 0
    assert len(np.unique(settled, axis=0)) == ROWS


def test_reassign_and_none(tokenizer, tmp_path, vectors):
    rows = 180  # there are 256 tuples
    table = open_table(write(tmp_path / "few.parquet", vectors[:rows], IDS[:rows]), "embedding", "item_id")
    codes = bulk.encode(tokenizer, table)
    assert len(np.unique(codes, axis=0)) < rows
    settled = bulk.resolve(codes, "reassign", tokenizer, table)
    assert settled.shape == codes.shape
    assert len(np.unique(settled, axis=0)) == rows
    _, group, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    alone = counts[group.reshape(-1)] == 1
    np.testing.assert_array_equal(settled[alone], codes[alone])
    np.testing.assert_array_equal(bulk.resolve(codes, "none", tokenizer, table), codes)


def test_reconstruction_error_is_of_the_variance(tokenizer, vectors):
    decoded = tokenizer.decode(tokenizer.encode(vectors))
    error = np.square(vectors - decoded).mean() / vectors.var(axis=0).mean()
    assert bulk.reconstruction_error(tokenizer, vectors) == pytest.approx(error, rel=1e-4)
    assert 0.0 < error < 0.5


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy"])
@pytest.mark.parametrize("policy", ["append", "none"])
@pytest.mark.parametrize("depth", [None, 1])
def test_decode_of_what_was_written(suffix, policy, depth, tokenizer, table, expected, tmp_path):
    codes = bulk.resolve(expected.astype(np.int32), policy, tokenizer, table)
    ids, out = tmp_path / f"ids{suffix}", tmp_path / f"vectors{suffix}"
    bulk.write_codes(ids, table, codes, tokenizer, policy)
    assert bulk.decode(tokenizer, open_codes(ids), out, depth) == (depth or STAGES)
    column = {".csv": "embedding_*", ".npy": None}.get(suffix, "embedding")
    again = open_table(out, column, None if suffix == ".npy" else "item_id")
    (batch,) = again.batches(ROWS)
    np.testing.assert_allclose(batch.vectors, tokenizer.decode(expected[:, :depth]), rtol=1e-5, atol=1e-6)
    assert batch.ids.to_pylist() == (list(range(ROWS)) if suffix == ".npy" else IDS)


def test_decode_names_what_is_wrong(tokenizer, tmp_path):
    def codes(values):
        np.save(tmp_path / "ids.npy", np.asarray(values, dtype=np.int32))
        return open_codes(tmp_path / "ids.npy")

    for values, depth, match in [
        ([[1, 2], [3, CODES]], None, r"ids.npy, row 1 \(counted from 0\) has codes \[3, 16\], expected 0 to 15"),
        ([[1, 2], [-1, 2]], None, r"row 1 \(counted from 0\) has codes \[-1, 2\]"),
        ([[1, 2, 0, 0]], None, "has 4 codes a row, the tokenizer 2: use the one that made them"),
        ([[1, 2, 0]], 3, "--depth 3: expected 1 to 2"),
        ([[1]], 2, "--depth 2: expected 1 to 1"),
    ]:
        with pytest.raises(UserError, match=match):
            bulk.decode(tokenizer, codes(values), tmp_path / "out.npy", depth)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.npy"]
    bulk.decode(tokenizer, codes([[1], [2]]), tmp_path / "out.npy")  # any depth
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), tokenizer.decode(np.array([[1], [2]])))


def test_codes_of_another_tokenizer_are_refused(tokenizer, table, expected, vectors, tmp_path):
    other = Tokenizer(num_stages=STAGES, codebook_size=CODES, seed=1).fit(vectors)
    bulk.write_codes(tmp_path / "ids.parquet", table, expected.astype(np.int32), tokenizer, "none")
    codes = open_codes(tmp_path / "ids.parquet")
    about = manifest.describe(tokenizer.fingerprint, "none", [CODES] * STAGES)
    assert codes.manifest.items() >= about.items()
    assert bulk.check_made_by(codes, tokenizer)
    match = rf"ids.parquet holds IDs of the tokenizer {tokenizer.fingerprint[:12]}, but this one is "
    match += rf"{other.fingerprint[:12]}: name the tokenizer that made them, or encode the items again"
    with pytest.raises(UserError, match=match):
        bulk.decode(other, codes, tmp_path / "vectors.npy")
    assert not (tmp_path / "vectors.npy").exists()
    bulk.write_codes(tmp_path / "ids.csv", table, expected.astype(np.int32), tokenizer, "none")  # has no room for it
    assert not bulk.check_made_by(open_codes(tmp_path / "ids.csv"), other)


def test_the_fingerprint_is_of_the_parameters_alone(tokenizer, vectors, tmp_path):
    tokenizer.save(tmp_path / "tok")
    again = Tokenizer(num_stages=STAGES, codebook_size=CODES, seed=0).fit(vectors)
    assert Tokenizer.load(tmp_path / "tok").fingerprint == again.fingerprint == tokenizer.fingerprint
    flat = Tokenizer(num_stages=STAGES, codebook_size=CODES, seed=0, kind="euclidean").fit(vectors)
    chained = Tokenizer(num_stages=STAGES, codebook_size=CODES, seed=0, kind="naive").fit(vectors)
    again.partial_fit(vectors[:100])
    assert len({each.fingerprint for each in (tokenizer, flat, chained, again)}) == 4


def test_a_table_that_claims_more_rows_than_memory_holds(tokenizer, table):
    table.rows = 2**45
    with pytest.raises(UserError, match=r"the codes of the 35,184,372,088,832 rows of .* would take .* TB of memory"):
        bulk.encode(tokenizer, table)


@pytest.mark.parametrize("policy", ["none", "reassign"])
def test_a_table_that_is_replaced_while_it_is_encoded(policy, tokenizer, table, tmp_path, vectors):
    """Before, the ids of the new file were written beside the codes of the old."""
    write(tmp_path / "other.parquet", vectors[::-1].copy(), IDS[::-1])

    class Replacing(PlainProgress):
        def patient_bar(self, label, total, unit=""):
            if label == "encoding" and (tmp_path / "other.parquet").exists():
                os.replace(tmp_path / "other.parquet", table.path)
            return super().patient_bar(label, total, unit)

    def run():
        codes = bulk.encode(tokenizer, table, progress=Replacing(io.StringIO()))
        codes = bulk.resolve(codes, policy, tokenizer, table)
        bulk.write_codes(tmp_path / "ids.parquet", table, codes, tokenizer, "none")

    with pytest.raises(UserError, match=r"items.parquet was changed while it was read: run the command again"):
        run()
    assert not (tmp_path / "ids.parquet").exists()


def test_all_vectors_are_there_and_gone(table, tmp_path, vectors):
    with bulk.all_vectors(table, tmp_path) as found:
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, vectors)
        assert not found.flags.writeable  # a write into a mapped file on a full disk would kill the process
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


def test_only_rows_of_an_order_are_copied_and_read(table, tmp_path, vectors, monkeypatch):
    order, sizes = np.array([7, 3, 1400, 7]), []
    mapped = np.memmap
    monkeypatch.setattr(np, "memmap", lambda *given, **named: sizes.append(named["shape"]) or mapped(*given, **named))
    with bulk.all_vectors(table, tmp_path, order=order) as found:
        assert (found.count, found.dim) == (4, vectors.shape[1])
        np.testing.assert_array_equal(found.take(slice(0, 4)), vectors[order])
        np.testing.assert_array_equal(found.take(np.array([2, 0])), vectors[[1400, 7]])
    assert sizes == [(3, vectors.shape[1])]


def test_a_full_disk_is_told_when_all_vectors_are_copied(table, tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with (
            pytest.raises(UserError, match=r"temporary copy of .*items.parquet into .*\(.*\): make room for 1 MB"),
            bulk.all_vectors(table, tmp_path),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


def test_progress_is_shown_for_long_work_only(tokenizer, table, monkeypatch):
    for patience, shown in ((60.0, False), (-1.0, True)):
        monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience)
        stream = io.StringIO()
        bulk.encode(tokenizer, table, batch=BATCH, progress=PlainProgress(stream, seconds=0.0))
        lines = stream.getvalue().splitlines()
        assert bool(lines) == shown
        if shown:
            assert lines[-1].startswith("encoding  1,500/1,500")
            assert "vectors/s" in lines[-1]


# --- Ray ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray():
    found = pytest.importorskip("ray", reason="ray is not installed: pip install 'ghrq[scale]'")
    found.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield found
    found.shutdown()


@pytest.mark.slow
def test_ray_gives_the_same_file(ray, tokenizer, table, tmp_path, monkeypatch):
    """By the command, from a folder that is not Ray's: row by row, in the order of the table."""
    monkeypatch.chdir(tmp_path)
    tokenizer.save(tmp_path / "tok")
    for where in ("local", "ray"):
        arguments = [
            "encode",
            "tok",
            "items.parquet",
            "--id",
            "item_id",
            "--out",
            f"{where}.parquet",
            "--batch",
            "100",
        ]
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, "--on", where])
        assert not end.value.code
    assert len(table.spans(BATCH)) > 5
    local, spread = (pq.read_table(tmp_path / f"{where}.parquet") for where in ("local", "ray"))
    assert local.column("item_id").to_pylist() == IDS
    assert local.equals(spread)
    assert ray.is_initialized()  # it was there before, so it stays


@pytest.mark.slow
def test_a_mistake_found_by_ray_is_one_line(ray, tokenizer, tmp_path, vectors):
    bad = vectors.copy()
    bad[1111, 2] = np.nan
    table = open_table(write(tmp_path / "items.parquet", bad), "embedding", "item_id")
    with pytest.raises(
        UserError, match=r"items.parquet, row 1111 \(counted from 0\): .* remove that row, or .* --on-bad skip$"
    ):
        bulk.encode(tokenizer, table, batch=BATCH, on="ray")


def test_missing_ray_names_the_extra(tokenizer, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"this needs ray, which is not installed: pip install 'ghrq\[scale\]'"):
        bulk.encode(tokenizer, table, on="ray")
