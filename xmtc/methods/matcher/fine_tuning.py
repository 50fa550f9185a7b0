"""Training of Matcher's encoder, shared by texts and names, with the decoupled softmax and hard negatives.

A step has a batch of documents, some names of their labels, and the names that are most similar to each document among
those of labels that it does not have (hard negatives). All names of the step compete (in-batch negatives). The most
similar names are searched anew before each pass, with the encoder as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import normalize

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.features.encoders.model_loader import choose_pooling, load_encoder
from xmtc.features.encoders.sentence_vectors import encode_tokens, restore_encoder, store_encoder
from xmtc.methods.matcher.fine_tuned_model import SUBWORDS, FineTunedMatcherModel, encode_names_and_documents
from xmtc.methods.matcher.projection import compute_decoupled_softmax
from xmtc.nn.batches import TokenBatch, TokenLoader
from xmtc.nn.devices import mixed_precision, select_device
from xmtc.nn.text_encoder import TextEncoder
from xmtc.nn.training import TrainingOptions, fit_network

if TYPE_CHECKING:
    from xmtc.methods.matcher.matcher import Matcher

NAMES_PER_DOCUMENT = 3  # names of a document's labels in a step
SIMILAR_NAMES = 20  # wrong names per document from which hard negatives are drawn
SEARCHED_DOCUMENTS = 256  # documents that are compared with all names at a time
WARM_UP_SHARE = 0.1  # of the steps
MAX_GRADIENT_NORM = 1.0


class EpochLoader(TokenLoader):
    """Loader that names the current epoch after the state of its random generator."""

    epoch = ""

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        self.epoch = f"{rng.bit_generator.state['state']['state']:x}"
        return super().shuffled_batches(size, rng)


class DualEncoder(nn.Module):
    """Encoder of texts and names; the forward pass returns the loss of a step."""

    def __init__(self, encoder: TextEncoder):
        super().__init__()
        self.encoder = encoder

    def encode(self, batch: TokenBatch) -> Tensor:
        padded = batch.pad_ids(self.encoder.padding), batch.make_mask()
        ids, mask = (part[:, : self.encoder.max_length].contiguous() for part in padded)
        return normalize(self.encoder(ids, mask).float())

    def forward(self, documents: TokenBatch, names: TokenBatch, targets: Tensor) -> Tensor:
        texts, classes = self.encode(documents), self.encode(names)
        with torch.autocast(texts.device.type, enabled=False):  # bf16 is too imprecise for similarities
            return compute_decoupled_softmax(texts, classes, targets)


def fit_fine_tuned(method: Matcher, data: Dataset, run: Run) -> FineTunedMatcherModel:
    """Train the encoder on the documents that are not held out, and the matcher on its vectors of all documents."""
    if data.names is None or data.names.subwords is None:
        raise XmtcError(
            "The data set has no names of labels, which matcher needs; train from texts: "
            "Classifier('matcher', fine_tune=2).fit(texts, labels)."
        )
    claim_checkpoint(run, method, data)
    _, rest = method.split(data)
    source = data.tokens(SUBWORDS).encoder
    model = load_encoder(source)
    encoder = TextEncoder(model, choose_pooling(source, model)).to(select_device(run))
    name_targets = csr_array(csr_array(rest.Y)[:, data.names.labels])  # (n_docs, n_names)
    train_encoder(method, encoder, rest.tokens(SUBWORDS), data.names.subwords, name_targets, run)
    stored = store_encoder(encoder.model, encoder.pooling)
    vectors = encode_names_and_documents(restore_encoder(stored), data, run)
    return FineTunedMatcherModel(
        n_labels=data.n_labels,
        views=data.sizes,
        encoder=stored,
        matcher=method.fit_vectors(vectors, run.for_part("matcher")),
    )


def train_encoder(
    method: Matcher, encoder: TextEncoder, documents: Tokens, names: Tokens, name_targets: csr_array, run: Run
) -> None:
    """Train the encoder in place. Documents without labels are no part of it."""
    device, is_labelled = select_device(run), np.flatnonzero(np.diff(name_targets.indptr))
    documents, name_targets = documents.select_rows(is_labelled), csr_array(name_targets[is_labelled])
    loader, name_loader = EpochLoader(documents, device), TokenLoader(names, device)
    network, n_steps = DualEncoder(encoder), ceil(documents.n_docs / method.batch)
    similar, searched = np.zeros((documents.n_docs, 0), np.int64), ""

    def search() -> np.ndarray:
        network.eval()
        found = find_similar_names(encoder, documents, names, name_targets, run.without_output())
        network.train()
        return found

    def loss(docs: np.ndarray) -> Tensor:
        nonlocal similar, searched
        if method.hard_negatives and searched != loader.epoch:
            similar, searched = repeat_search(search, f"similar-{loader.epoch}", run), loader.epoch
        rng = np.random.default_rng(torch.initial_seed())  # the seed of the step, which a resumed training repeats
        batch = loader.load_batch(docs)
        chosen = sample_step_names(name_targets[batch.docs], similar[batch.docs], method.hard_negatives, rng)
        name_batch = name_loader.load_batch(chosen)
        targets = torch.from_numpy(name_targets[batch.docs][:, name_batch.docs].toarray()).to(device)
        with mixed_precision(device):
            return network(batch, name_batch, targets)

    options = make_training_options(method, n_steps)
    if documents.n_docs:
        fit_network(
            network, loader=loader, loss=loss, validation=None, options=options, batch=method.batch, run=run,
            name="encoder",
        )  # fmt: skip


def repeat_search(search: Callable[[], np.ndarray], name: str, run: Run) -> np.ndarray:
    """Return the result of a search that an interrupted training made with the weights of that time, or a new one."""
    kept = run.checkpoint.load_piece(name)
    if kept is not None:
        return kept["similar"]
    similar = search()
    run.checkpoint.save_piece(name, {"similar": similar})
    return similar


def make_training_options(method: Matcher, n_steps: int) -> TrainingOptions:
    """Return options with a rate that rises and falls linearly; `n_steps` are those of a pass."""
    return TrainingOptions(
        epochs=method.fine_tune,
        rate=method.encoder_rate,
        average_from=method.fine_tune,  # no averaging
        average_every=1,
        patience=method.fine_tune,
        seed=method.seed,
        max_gradient_norm=MAX_GRADIENT_NORM,
        n_steps=method.fine_tune * n_steps,
        warmup_steps=int(WARM_UP_SHARE * method.fine_tune * n_steps),
    )


def find_similar_names(
    encoder: TextEncoder, documents: Tokens, names: Tokens, name_targets: csr_array, run: Run
) -> np.ndarray:
    """Return the names that are most similar to each document without being names of its labels, shape (n_docs, n)."""
    queries, keys = (encode_tokens(encoder, tokens, run) for tokens in (documents, names))
    n_similar = min(SIMILAR_NAMES, names.n_docs)
    parts = []
    for begin in range(0, len(queries), SEARCHED_DOCUMENTS):
        similarities = queries[begin : begin + SEARCHED_DOCUMENTS] @ keys.T
        similarities[name_targets[begin : begin + SEARCHED_DOCUMENTS].nonzero()] = -np.inf
        parts.append(np.argpartition(-similarities, n_similar - 1, axis=1)[:, :n_similar])
    return np.concatenate(parts)


def sample_step_names(
    targets: csr_array, similar: np.ndarray, n_hard_negatives: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the names of a step: some of each document's labels, and some that are similar to it."""
    own = [
        rng.permutation(targets.indices[begin:end])[:NAMES_PER_DOCUMENT]
        for begin, end in zip(targets.indptr[:-1], targets.indptr[1:], strict=True)
    ]
    hard = rng.permuted(similar, axis=1)[:, :n_hard_negatives]
    return np.unique(np.concatenate([*own, hard.ravel()]).astype(np.int64))
