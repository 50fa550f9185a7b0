"""Linear map of sentence vectors, trained so that texts are similar to the names of their labels.

The map is a residual, x + Ax, shared by texts and names. The loss is the decoupled softmax of DEXML: each label of a
text competes with all labels that the text does not have."""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import normalize, softplus

from xmtc.core.run import Run
from xmtc.nn.devices import select_device, use_torch_settings

BATCH_TEXTS = 256
MAX_BATCH_NAMES = 8192  # names in a batch: those of its labels, and random others
LOSS_TEMPERATURE = 0.05
RATE = 1e-3
WEIGHT_DECAY = 1.0  # keeps the map close to the identity, which serves labels without documents
EXCLUDED = -1e4  # logit of labels that a text has, among the competitors


def train_projection(
    documents: np.ndarray, Y: csr_array, names: np.ndarray, name_labels: np.ndarray, epochs: int, seed: int, run: Run
) -> np.ndarray:
    """Return the matrix A, shape (d, d) float32. Each name is a class; a text has all names of its labels."""
    device, width = select_device(run), names.shape[1]
    name_targets = csr_array(Y[:, name_labels])  # (n_docs, n_names)
    rng, n_docs = np.random.default_rng(seed), len(documents)
    matrix = torch.zeros(width, width, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([matrix], lr=RATE, weight_decay=WEIGHT_DECAY)
    n_steps = max(1, epochs * ceil(n_docs / BATCH_TEXTS))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / n_steps)
    with run.stage("training the projection", epochs * n_docs) as progress, use_torch_settings(run, device):
        for _ in range(epochs):
            for rows in np.array_split(rng.permutation(n_docs), ceil(n_docs / BATCH_TEXTS)):
                targets = csr_array(name_targets[rows])
                chosen = sample_names(targets, len(names), rng)
                batch = documents[rows], names[chosen], targets[:, chosen].toarray()
                loss = compute_loss(matrix, *(torch.from_numpy(part).to(device) for part in batch))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                progress.advance(len(rows))
    return matrix.detach().cpu().numpy()


def sample_names(targets: csr_array, n_names: int, rng: np.random.Generator) -> np.ndarray:
    """Return the names of a batch: all, or those of its labels and random others."""
    if n_names <= MAX_BATCH_NAMES:
        return np.arange(n_names)
    return np.union1d(targets.indices, rng.choice(n_names, MAX_BATCH_NAMES, replace=False))


def compute_loss(matrix: Tensor, documents: Tensor, names: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over texts of the mean decoupled softmax loss of their names."""
    texts, classes = (normalize(vectors + vectors @ matrix) for vectors in (documents, names))
    return compute_decoupled_softmax(texts, classes, targets)


def compute_decoupled_softmax(texts: Tensor, classes: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of vectors of unit length."""
    logits = texts @ classes.T / LOSS_TEMPERATURE
    competitors = logits.masked_fill(targets > 0, EXCLUDED).logsumexp(1, keepdim=True)
    losses = (softplus(competitors - logits) * targets).sum(1) / targets.sum(1).clamp(min=1)
    return losses.mean()
