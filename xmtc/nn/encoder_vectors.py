"""Word vectors from a pretrained encoder: principal components of its states of each word alone, as in model2vec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from xmtc.core.dataset import Terms
from xmtc.core.run import Run
from xmtc.features.encoders.catalogue import CONFIG, ENCODER_PACKAGES
from xmtc.features.subwords import Subwords
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import mixed_precision, select_device, use_torch_settings

N_COMPONENTS = 256
VECTOR_SCALE = 0.5  # standard deviation of the components, about that of GloVe vectors
MAX_WORD_SUBWORDS = 16
BATCH_WORDS = 512


def is_encoder(source: str) -> bool:
    """Return True if a source of vectors is the name or the folder of an encoder."""
    return source in ENCODER_PACKAGES or (Path(source).expanduser() / CONFIG).is_file()


def compute_encoder_vectors(source: str, vocabulary: Terms, run: Run = Run()) -> np.ndarray:
    """Return float32 vectors of words, shape (len(vocabulary), d) with d <= N_COMPONENTS."""
    return project_states(encode_words(source, vocabulary.words(), run))


@torch.inference_mode()
def encode_words(source: str, words: list[str], run: Run) -> np.ndarray:
    """Return the mean state of the subwords of each word, including special tokens, shape (len(words), width)."""
    from xmtc.features.encoders.model_loader import load_encoder  # imports transformers

    tokens = Subwords(encoder=source, max_subwords=MAX_WORD_SUBWORDS).fit(words, run)[1]
    device = select_device(run)
    with use_torch_settings(run, device), run.stage("encoding words", len(words)) as progress:
        model = load_encoder(tokens.encoder).to(device).eval()
        loader, states = TokenLoader(tokens, device), np.empty((len(words), model.config.hidden_size), np.float32)
        for numbers in loader.batches_by_length(BATCH_WORDS):
            batch = loader.load_batch(numbers)
            ids, mask = batch.pad_ids(model.config.pad_token_id or 0), batch.make_mask()
            with mixed_precision(device):
                hidden = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
            weights = mask[..., None].float()
            states[batch.docs] = ((hidden * weights).sum(1) / weights.sum(1)).cpu().numpy()
            progress.advance(len(numbers))
    return states


def project_states(states: np.ndarray) -> np.ndarray:
    """Return the first principal components of the states, scaled."""
    centred = states - states.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :N_COMPONENTS]  # largest variance first
    components = centred @ directions
    return components * (VECTOR_SCALE / max(float(components.std()), 1e-12))
