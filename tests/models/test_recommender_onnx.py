"""The exported parts of a recommender give torch's numbers in ONNX Runtime, for any batch and length."""

import numpy as np
import pytest
import torch
from test_recommender import SIZES, N, small

from ghrq.models.recommender_onnx import export_onnx
from ghrq.system.errors import UserError


def session_of(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_onnx_runtime_gives_the_same_states_logits_and_items(tmp_path):
    model = small()
    encoder, decoder = (session_of(path) for path in export_onnx(model, str(tmp_path / "onnx")))
    for batch, length in ((3, 5), (7, 2), (1, 1)):
        items = torch.randint(N, (batch, length))
        with torch.no_grad():
            expected = model.states(items)
        (states,) = encoder.run(None, {"items": items.numpy()})
        np.testing.assert_allclose(states, expected.numpy(), rtol=1e-4, atol=1e-5)
        wanted = model.codes[items[:, -1]]
        (logits,) = decoder.run(None, {"states": states[:, -1].copy(), "codes": wanted[:, :-1].numpy()})
        # The sum of log-softmaxes over the children in the trie is the model's log-probability.
        nodes, total = model.trie.path(wanted), torch.zeros(batch)
        for stage, found in enumerate(torch.from_numpy(logits).split(SIZES, dim=1)):
            allowed = model.trie.children(nodes[:, stage], stage)
            scores = found.masked_fill(~allowed, -torch.inf).log_softmax(-1)
            total += scores.gather(1, wanted[:, stage : stage + 1]).squeeze(1)
        with torch.no_grad():
            plain = model.decoder.log_probability(expected[:, -1], wanted, nodes, model.trie)
        torch.testing.assert_close(total, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_padding_changes_no_state_and_a_model_without_codes_has_an_encoder_only(tmp_path):
    plain = small(sizes=(), text_dim=0, inputs=("item",), outputs=("items",))
    (path,) = export_onnx(plain, tmp_path)
    items = torch.randint(N, (4, 3))
    padded = torch.cat((items, torch.full((4, 2), -1)), dim=1)
    (states,) = session_of(path).run(None, {"items": padded.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(states[:, :3], plain.states(items).numpy(), rtol=1e-4, atol=1e-5)


def test_t5_is_refused(tmp_path):
    model = small(generator="t5", text_dim=0, inputs=("codes",), outputs=("codes",))
    with pytest.raises(UserError, match="generator t5"):
        export_onnx(model, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
