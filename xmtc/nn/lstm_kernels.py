"""Triton kernels of a bidirectional LSTM.

cuDNN synchronises the whole GPU at every time step. Here each program processes all words of a few documents without
synchronising with other programs; every step reads the weights from the cache.

Rows are words in the order of `TokenBatch`: the word of a document at a step is row offsets[step] + document. Gates are
i, f, g, o as in PyTorch: c = f c' + i g, h = o tanh(c).
"""

from __future__ import annotations

import triton
import triton.language as tl

DOCUMENTS_PER_PROGRAM = 16  # smallest size of a tensor-core product
UNITS_PER_PRODUCT = 32  # units summed in one product
# The fastest of eight configurations on an H200.
KERNEL_OPTIONS = {"DOCS": DOCUMENTS_PER_PROGRAM, "PIECE": UNITS_PER_PRODUCT, "num_warps": 8, "num_stages": 3}


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def find_rows(step, direction, length, offsets, docs, there):
    """Return the rows of a program's documents at a step, counted from the first or the last word."""
    at = tl.where(direction == 0, step, length - 1 - step)
    return tl.load(offsets + at, mask=there, other=0) + docs


@triton.jit
def forward_kernel(
    gates, recurrent, first, cells, states, lengths, offsets, n_docs,
    UNITS: tl.constexpr, DOCS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Compute cells and states, shape (n_words, 2, UNITS).

    gates: (n_words, 2, 4, UNITS), contributions of the words; overwritten by the activated gates.
    recurrent: (2, UNITS, 4, UNITS), weights from state to gates. first: (2, 2, UNITS), initial h and c.
    """
    docs, direction = tl.program_id(0) * DOCS + tl.arange(0, DOCS), tl.program_id(1)
    units, piece = tl.arange(0, UNITS), tl.arange(0, PIECE)
    length = tl.load(lengths + docs, mask=docs < n_docs, other=0)
    cell = tl.zeros((DOCS, UNITS), tl.float32) + tl.load(first + (2 + direction) * UNITS + units)[None, :]
    before = docs.to(tl.int64)
    recurrent += direction * UNITS * 4 * UNITS
    for step in range(tl.max(length)):
        there = step < length
        row = find_rows(step, direction, length, offsets, docs, there).to(tl.int64)
        mine = gates + (row * 2 + direction)[:, None] * (4 * UNITS) + units[None, :]
        known = there[:, None]
        i = tl.load(mine, mask=known, other=0.0).to(tl.float32)
        f = tl.load(mine + UNITS, mask=known, other=0.0).to(tl.float32)
        g = tl.load(mine + 2 * UNITS, mask=known, other=0.0).to(tl.float32)
        o = tl.load(mine + 3 * UNITS, mask=known, other=0.0).to(tl.float32)
        for begin in range(0, UNITS, PIECE):
            at = begin + piece
            start = tl.load(first + direction * UNITS + at)
            earlier = tl.load(states + (before * 2 + direction)[:, None] * UNITS + at[None, :], mask=known)
            h = tl.where(step > 0, earlier, start[None, :].to(earlier.dtype))
            w = recurrent + at[:, None] * (4 * UNITS) + units[None, :]
            i = tl.dot(h, tl.load(w), i)
            f = tl.dot(h, tl.load(w + UNITS), f)
            g = tl.dot(h, tl.load(w + 2 * UNITS), g)
            o = tl.dot(h, tl.load(w + 3 * UNITS), o)
        i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)
        cell = tl.where(known, f * cell + i * g, cell)
        kind = gates.dtype.element_ty
        tl.store(mine, i.to(kind), mask=known)
        tl.store(mine + UNITS, f.to(kind), mask=known)
        tl.store(mine + 2 * UNITS, g.to(kind), mask=known)
        tl.store(mine + 3 * UNITS, o.to(kind), mask=known)
        here = (row * 2 + direction)[:, None] * UNITS + units[None, :]
        tl.store(cells + here, cell, mask=known)
        tl.store(states + here, (o * tanh(cell)).to(kind), mask=known)
        before = row
        tl.debug_barrier()  # the next step reads states that other threads of this program wrote


@triton.jit
def backward_kernel(
    gates, recurrent, first, cells, d_states, d_first, lengths, offsets, n_docs,
    UNITS: tl.constexpr, DOCS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Overwrite the gates by the gradients of their inputs, and compute d_first.

    recurrent: (2, 4, UNITS, UNITS), weights from gates to state. d_first: (n_docs, 2, 2, UNITS), gradients of the
    initial h and c of each direction.
    """
    docs, direction = tl.program_id(0) * DOCS + tl.arange(0, DOCS), tl.program_id(1)
    units, piece = tl.arange(0, UNITS), tl.arange(0, PIECE)
    length = tl.load(lengths + docs, mask=docs < n_docs, other=0)
    first_cell = tl.load(first + (2 + direction) * UNITS + units)[None, :]
    d_state, d_cell = tl.zeros((DOCS, UNITS), tl.float32), tl.zeros((DOCS, UNITS), tl.float32)
    recurrent += direction * 4 * UNITS * UNITS
    kind = gates.dtype.element_ty
    longest = tl.max(length)
    for back in range(longest):
        step = longest - 1 - back
        there = step < length
        known = there[:, None]
        row = find_rows(step, direction, length, offsets, docs, there).to(tl.int64)
        earlier = find_rows(tl.maximum(step - 1, 0), direction, length, offsets, docs, there).to(tl.int64)
        here = (row * 2 + direction)[:, None] * UNITS + units[None, :]
        mine = gates + (row * 2 + direction)[:, None] * (4 * UNITS) + units[None, :]
        i = tl.load(mine, mask=known, other=0.0).to(tl.float32)
        f = tl.load(mine + UNITS, mask=known, other=0.0).to(tl.float32)
        g = tl.load(mine + 2 * UNITS, mask=known, other=0.0).to(tl.float32)
        o = tl.load(mine + 3 * UNITS, mask=known, other=0.0).to(tl.float32)
        cell = tanh(tl.load(cells + here, mask=known, other=0.0))
        there_before = (earlier * 2 + direction)[:, None] * UNITS + units[None, :]
        cell_before = tl.load(cells + there_before, mask=known, other=0.0)
        cell_before = tl.where(step > 0, cell_before, first_cell)
        d_h = d_state + tl.load(d_states + here, mask=known, other=0.0).to(tl.float32)
        d_c = d_cell + d_h * o * (1 - cell * cell)
        tl.store(mine, (d_c * g * i * (1 - i)).to(kind), mask=known)
        tl.store(mine + UNITS, (d_c * cell_before * f * (1 - f)).to(kind), mask=known)
        tl.store(mine + 2 * UNITS, (d_c * i * (1 - g * g)).to(kind), mask=known)
        tl.store(mine + 3 * UNITS, (d_h * cell * o * (1 - o)).to(kind), mask=known)
        d_cell = tl.where(known, d_c * f, d_cell)
        tl.debug_barrier()  # the product below reads gradients that other threads of this program wrote
        total = tl.zeros((DOCS, UNITS), tl.float32)
        for begin in range(0, 4 * UNITS, PIECE):
            at = begin + piece
            d = tl.load(gates + (row * 2 + direction)[:, None] * (4 * UNITS) + at[None, :], mask=known, other=0.0)
            total = tl.dot(d, tl.load(recurrent + at[:, None] * UNITS + units[None, :]), total)
        d_state = tl.where(known, total, d_state)
    out = d_first + (docs[:, None] * 4 + direction) * UNITS + units[None, :]
    tl.store(out, d_state, mask=(docs < n_docs)[:, None])
    tl.store(out + 2 * UNITS, d_cell, mask=(docs < n_docs)[:, None])
