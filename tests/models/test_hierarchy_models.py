"""The models of a hierarchy by themselves."""

from pathlib import Path

import pytest
import torch

from ghrq.models import AncestorTranslator, HierarchyEmbedding
from ghrq.models.ancestors import AncestorTranslatorConfig
from ghrq.models.hierarchy import HierarchyEmbeddingConfig
from ghrq.quantizer import QuantizerConfig

SIZES = {"num_stages": 2, "codebook_size": 4, "width": 8, "layers": 1, "heads": 2, "feedforward": 8}


@pytest.mark.parametrize("kind", ["ghrq", "euclidean"])
@pytest.mark.parametrize("hidden", [0, 6])
def test_an_embedding_comes_back_the_same(kind: str, hidden: int, tmp_path: Path) -> None:
    quantizer = QuantizerConfig(kind=kind, codebook_size=4, num_stages=2)
    config = HierarchyEmbeddingConfig(size=9, dim=3, hidden=hidden, initial_scale=0.3, quantizer=quantizer)
    embedding = HierarchyEmbedding(config)
    embedding.save_pretrained(tmp_path / "embedding")
    found = HierarchyEmbedding.from_pretrained(tmp_path / "embedding")
    assert found.config == config
    assert found.points().shape == (9, 3)
    assert found.codes().shape == (9, 2)
    assert torch.equal(found.points(), embedding.points())
    assert torch.equal(found.codes(), embedding.codes())
    if kind == "ghrq":
        assert torch.linalg.vector_norm(found.points(), dim=1).max() < 1.0


def test_a_translator_comes_back_with_the_codes_of_all_nodes(tmp_path: Path) -> None:
    codes = torch.tensor([[0, 0], [1, 3], [1, 3], [2, 1], [3, 0]])
    translator = AncestorTranslator(AncestorTranslatorConfig(size=5, **SIZES), codes).eval()
    translator.save_pretrained(tmp_path / "translator")
    found = AncestorTranslator.from_pretrained(tmp_path / "translator")
    assert torch.equal(found.codes, codes)
    nodes = torch.tensor([4, 0])
    tuples, scores = found.ancestors(nodes, beam=4)
    assert tuples.shape == (2, 4, 2)
    for mine, theirs in zip((tuples, scores), translator.ancestors(nodes, beam=4), strict=True):
        assert torch.equal(mine, theirs)
    assert {tuple(code) for code in tuples[0].tolist()} == {tuple(code) for code in codes.tolist()}
    free = found.ancestors(nodes, beam=16, known=False)[0]
    assert len(free[0].unique(dim=0)) == 16
    assert found.nodes(torch.tensor([1, 3])).tolist() == [1, 2]
    assert found.nodes(torch.tensor([1, 2])).tolist() == []
