"""Sentence vectors: pooled states of a pretrained encoder, scaled to unit length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from xmtc.core.dataset import Tokens
from xmtc.core.run import Run
from xmtc.features.encoders.catalogue import first_sentence
from xmtc.features.encoders.model_loader import (
    MEAN_POOLING,
    POOLINGS,
    build_encoder,
    choose_pooling,
    dump_config,
    load_encoder,
)
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import get_device_limit, get_network_device, mixed_precision, select_device, use_torch_settings
from xmtc.nn.network import Weights
from xmtc.nn.text_encoder import TextEncoder
from xmtc.storage.form import Form, array

ALL_STATES = "all"  # pooling of TextEncoder that returns the state of every subword
MAX_BATCH_TEXTS = {"cpu": 32, "cuda": 512}
TRIAL_SUBWORDS = 40  # length of the text that checks a loaded encoder


@dataclass(frozen=True)
class StoredEncoder(Form):
    """Encoder in the form of a model folder."""

    config: str  # of transformers, JSON
    pooling: str
    width: int
    weights: dict[str, np.ndarray] = array(np.float16, np.float32, ndim=None)


def read_encoder(source: str) -> StoredEncoder:
    """Return the encoder of a folder or of the Hub, in half precision if its weights are in the range of it."""
    model = load_encoder(source)
    return store_encoder(model, choose_pooling(source, model))


def store_encoder(model: Any, pooling: str) -> StoredEncoder:
    """Return an encoder in half precision if its weights are in the range of it."""
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
    limit = np.finfo(np.float16).max
    if all(np.abs(values).max(initial=0) <= limit for values in weights.values()):
        weights = {name: values.astype(np.float16) for name, values in weights.items()}
    return StoredEncoder(dump_config(model), pooling, model.config.hidden_size, weights)


def restore_encoder(stored: StoredEncoder) -> TextEncoder:
    """Return the encoder with its weights in float32."""
    with torch.random.fork_rng([]):  # keeps the caller's random state
        model = build_encoder(stored.config, len(stored.weights))  # not on meta: some tensors are not weights
    Weights(stored.weights).load_into(model)
    return TextEncoder(model, stored.pooling).eval().requires_grad_(False)


def check_encoder(stored: StoredEncoder, n_subwords: int) -> None:
    """Raise a ValueError if an encoder is damaged, or reads fewer subwords than its tokenizer has."""
    if stored.pooling not in POOLINGS:
        raise ValueError(f"its pooling is {stored.pooling!r}; expected one of {', '.join(POOLINGS)}")
    try:
        with torch.device("meta"):
            model = build_encoder(stored.config, len(stored.weights))
    except Exception as error:  # transformers raises many types for invalid configurations
        raise ValueError(f"its encoder cannot be built: {first_sentence(error)}") from None
    Weights(stored.weights).check_fits(model)
    n_known, width = len(model.get_input_embeddings().weight), model.config.hidden_size
    if n_known < n_subwords or width != stored.width:
        raise ValueError(
            f"its encoder has {n_known} subwords and {width} dimensions; expected {n_subwords} and {stored.width}"
        )


def check_encoding(encoder: TextEncoder, max_subwords: int) -> None:
    """Raise a ValueError if encoding fails; some errors of a configuration appear only when the encoder runs."""
    longest = encoder.max_length
    if longest is not None and longest < max_subwords:
        raise ValueError(f"it reads {max_subwords} subwords of a text, but its encoder has positions for {longest}")
    lengths = min(TRIAL_SUBWORDS, max_subwords), 1
    tokens = Tokens(np.zeros(sum(lengths), np.int32), np.cumsum([0, *lengths]), 1)
    try:
        vectors = encode_tokens(encoder, tokens, Run(threads=1, device="cpu"))
    except Exception as error:  # transformers and PyTorch raise many types
        raise ValueError(f"its encoder fails on a text: {first_sentence(error)}") from None
    if not np.isfinite(vectors).all():
        raise ValueError("its encoder returns values that are not finite")


def encode_tokens(encoder: TextEncoder, tokens: Tokens, run: Run = Run()) -> np.ndarray:
    """Return the vector of each text, shape (n_docs, width), float32.

    Texts of similar length form a batch. On CPUs, each thread encodes batches of its own, so that vectors do not depend
    on the number of threads."""
    device = select_device(run)
    encoder, loader = encoder.to(device), TokenLoader(tokens, device)
    vectors = np.zeros((tokens.n_docs, encoder.width), np.float32)

    @torch.inference_mode()
    def encode(docs: np.ndarray) -> None:
        batch = loader.load_batch(docs)
        ids, mask = (tensor[:, : encoder.max_length] for tensor in (batch.pad_ids(encoder.padding), batch.make_mask()))
        with mixed_precision(device):
            states = encoder(ids, mask).float()
        vectors[batch.docs] = torch.nn.functional.normalize(states).cpu().numpy()

    run = run if device.type == "cpu" else replace(run, threads=1)
    batches = loader.batches_by_length(get_device_limit(MAX_BATCH_TEXTS, device))
    with use_torch_settings(run, device, threads=1):
        for _ in run.map(encode, batches, "encoding texts", size=len, total=tokens.n_docs):
            pass
    return vectors


@torch.inference_mode()
def divide_vector(encoder: TextEncoder, ids: np.ndarray) -> np.ndarray:
    """Return the part of a text's vector that comes from the state of each subword, shape (n_subwords, width).

    The parts sum to the vector if it is the mean of the states; for another pooling they are zero."""
    if encoder.pooling != MEAN_POOLING:
        return np.zeros((len(ids), encoder.width))
    tensor = torch.from_numpy(ids.astype(np.int64))[None].to(get_network_device(encoder))
    states = TextEncoder(encoder.model, ALL_STATES)(tensor, torch.ones_like(tensor, dtype=torch.bool))
    parts = states[0].double().cpu().numpy()
    return parts / max(float(np.linalg.norm(parts.sum(axis=0))), 1e-12)
