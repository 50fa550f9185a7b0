"""Word vectors from a pretrained encoder."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tiny_encoders import tiny
from transformers import AutoModel

from xmtc import XmtcError
from xmtc.features.words import Words
from xmtc.nn import encoder_vectors
from xmtc.nn.encoder_vectors import VECTOR_SCALE, compute_encoder_vectors, project_states
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.text.string_index import StringIndex

WORDS = ["ab", "abc", "z", "alpha", "b"]


def compute_reference_states(folder: str) -> np.ndarray:
    """Encode one word at a time with transformers alone; the tiny tokenizer splits unknown words into letters."""
    from tokenizers import Tokenizer

    tokenizer, model = Tokenizer.from_file(f"{folder}/tokenizer.json"), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        ids = [torch.tensor([tokenizer.encode(word).ids]) for word in WORDS]
        return np.stack([model(input_ids=each).last_hidden_state[0].mean(0).numpy() for each in ids])


def test_vectors_have_the_distances_of_the_mean_states():
    vectors = compute_encoder_vectors(tiny("bert"), StringIndex.from_strings(WORDS))
    states = compute_reference_states(tiny("bert"))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors.std(), VECTOR_SCALE, rtol=1e-5)
    expected, actual = (
        np.linalg.norm(rows[:, None] - rows[None], axis=2) for rows in (states - states.mean(0), vectors)
    )
    np.testing.assert_allclose(actual / actual.max(), expected / expected.max(), atol=1e-4)


def test_components_are_ordered_by_variance_and_limited():
    n = encoder_vectors.N_COMPONENTS
    states = np.random.default_rng(0).normal(size=(2 * n, n + 9)).astype(np.float32)
    components = project_states(states * np.linspace(1, 9, n + 9, dtype=np.float32))
    assert components.shape == (2 * n, n)
    centred = states * np.linspace(1, 9, n + 9) - (states * np.linspace(1, 9, n + 9)).mean(0)
    singular = np.linalg.svd(centred, compute_uv=False)
    norms = np.linalg.norm(components, axis=0)
    np.testing.assert_allclose(norms / norms[0], singular[:n] / singular[0], rtol=1e-3)


def test_a_plus_joins_a_file_and_an_encoder(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("b 1 2 3\nz 4 5 6\na 7 8 9\n")
    tokens = Words().fit(["a b c"])[1]
    joined = load_token_vectors(tokens, f"{file}+{tiny('bert')}")
    np.testing.assert_array_equal(joined[1:, :3], load_token_vectors(tokens, str(file))[1:])
    np.testing.assert_array_equal(joined[1:, 3:], load_token_vectors(tokens, tiny("bert"))[1:])


def test_an_unknown_part_is_named(tmp_path):
    with pytest.raises(XmtcError, match="no-such-vectors is neither a file nor the name of known word vectors"):
        load_token_vectors(Words().fit(["a b c"])[1], f"{tiny('bert')}+no-such-vectors")
