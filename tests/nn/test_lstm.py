"""Triton kernels of the LSTM against PyTorch's LSTM."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from torch import nn  # noqa: E402

from xmtc.core.dataset import Tokens  # noqa: E402
from xmtc.nn.batches import TokenBatch, TokenLoader  # noqa: E402
from xmtc.nn.lstm import compute_states, compute_states_with_kernels  # noqa: E402

HIDDEN, DIMENSION = 64, 20


def make_documents(device: torch.device, longest: int = 8) -> TokenBatch:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest + 1, 19)  # fills one kernel program and part of a second
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = Tokens(rng.integers(0, 50, offsets[-1]).astype(np.int32), offsets, 50)
    return TokenLoader(tokens, device).load_batch(np.arange(19))


def compute_states_and_gradients(states, device: torch.device, batch: TokenBatch):
    torch.manual_seed(0)
    lstm = nn.LSTM(DIMENSION, HIDDEN, bidirectional=True).to(device)
    words = torch.randn(len(batch.ids), DIMENSION).to(device).requires_grad_(True)
    first = (0.3 * torch.randn(2, 2, 1, HIDDEN)).to(device).requires_grad_(True)
    result = states(lstm, words, first, batch)
    (result.float() * torch.randn(len(batch.ids), 2 * HIDDEN).to(device)).sum().backward()
    return [result.detach(), *(tensor.grad for tensor in (words, first, *lstm.parameters()))]


def largest_difference(kind: torch.dtype, device: torch.device) -> float:
    batch = make_documents(device)
    expected = compute_states_and_gradients(compute_states, device, batch)
    result = compute_states_and_gradients(
        lambda *arguments: compute_states_with_kernels(*arguments, dtype=kind), device, batch
    )
    # np.max propagates NaN; max does not.
    return float(np.max([float((a - b).norm() / b.norm()) for a, b in zip(result, expected, strict=True)]))


@pytest.mark.skipif(not find_spec("triton"), reason="Triton is not installed, whose interpreter runs kernels on a CPU")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, on which the kernels themselves are tested")
def test_kernels_equal_pytorch_lstm():
    """Use a subprocess, because Triton selects its interpreter at import."""
    program = (
        "import torch; from test_lstm import largest_difference as d; print(d(torch.float32, torch.device('cpu')))"
    )
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join([*sys.path, os.path.dirname(os.path.dirname(__file__))]),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_kernels_on_a_gpu():
    assert largest_difference(torch.bfloat16, torch.device("cuda")) < 0.02


def test_cpu_uses_pytorch_lstm():
    batch = make_documents(torch.device("cpu"))
    states, *gradients = compute_states_and_gradients(compute_states, torch.device("cpu"), batch)
    assert states.shape == (len(batch.ids), 2 * HIDDEN)
    assert all(gradient.abs().max() > 0 for gradient in gradients)
