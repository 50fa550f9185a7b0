"""Web page with a linear model that predicts in the browser. The page is a single file and loads nothing.

Weights are rounded to 8 bits per slot, and the smallest are left out until the page has the requested size."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy.sparse import csr_array

from xmtc.errors import XmtcError
from xmtc.explain.html import create_environment
from xmtc.export.linear_arrays import LinearArrays
from xmtc.export.text_features import TextFeatures
from xmtc.storage.atomic import atomic_file
from xmtc.text.analyzers import DENSE_SCRIPT_RANGES
from xmtc.text.normalisation import combining_character_mask
from xmtc.text.tokenizer import WORD_UNIT, chunk_character_mask, word_character_mask

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
WEIGHT_LEVELS = 127  # of an 8-bit weight
SEARCH_STEPS = 8  # halvings of the interval in which the number of weights is searched
MEGABYTE = 1e6


def write_web_page(
    features: TextFeatures, arrays: LinearArrays, output: Path, max_mb: float, title: str
) -> LinearArrays:
    """Write the page, and return the arrays with the weights that it has."""
    kept, page = fit_size(arrays, lambda arrays: render_page(features, arrays, title), int(max_mb * MEGABYTE))
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(output) as file:
        file.write(page)
    return kept


def fit_size(
    arrays: LinearArrays, render: Callable[[LinearArrays], bytes], max_bytes: int
) -> tuple[LinearArrays, bytes]:
    """Return the arrays with as many weights as a page of `max_bytes` holds, and the page."""
    best = round_weights(arrays, arrays.weights.nnz)
    page = render(best)
    if len(page) <= max_bytes:
        return best, page
    low, high, page = 0, arrays.weights.nnz, b""
    for _ in range(SEARCH_STEPS):
        middle = (low + high) // 2
        candidate = round_weights(arrays, middle)
        rendered = render(candidate)
        if len(rendered) <= max_bytes:
            low, best, page = middle, candidate, rendered
        else:
            high = middle
    if not page:
        raise XmtcError(
            f"The page would have {len(rendered) / MEGABYTE:.2g} MB with {candidate.weights.nnz:,} of "
            f"{arrays.weights.nnz:,} weights; allow more than {max_bytes / MEGABYTE:g} MB with --max-mb, or train with "
            "fewer features, such as -p max_features=20000."
        )
    return best, page


def round_weights(arrays: LinearArrays, n_weights: int) -> LinearArrays:
    """Return arrays with the n largest weights, rounded to 8 bits per slot."""
    weights = arrays.weights
    absolute = np.abs(weights.data)
    if n_weights < len(absolute):
        limit = np.partition(absolute, len(absolute) - n_weights)[len(absolute) - n_weights] if n_weights else np.inf
        absolute = np.where(absolute >= limit, absolute, 0)
    scales = find_scales(weights, absolute, len(arrays.bias))
    rounded = np.where(absolute > 0, np.rint(weights.data / scales[weights.indices]), 0)
    data = (rounded * scales[weights.indices]).astype(np.float32)
    kept = csr_array((data, weights.indices.copy(), weights.indptr.copy()), shape=weights.shape)
    kept.eliminate_zeros()
    return replace(arrays, weights=kept)


def find_scales(weights: csr_array, absolute: np.ndarray, n_slots: int) -> np.ndarray:
    """Return the weight of one level of each slot."""
    largest = np.zeros(n_slots, np.float32)
    np.maximum.at(largest, weights.indices, absolute)
    return np.where(largest > 0, largest / np.float32(WEIGHT_LEVELS), np.float32(1)).astype(np.float32)


def render_page(features: TextFeatures, arrays: LinearArrays, title: str) -> bytes:
    """Return the page."""
    script, style = ((TEMPLATE_FOLDER / name).read_text(encoding="utf-8").strip() for name in ("page.js", "page.css"))
    template = create_environment(TEMPLATE_FOLDER).get_template("page.html.j2")
    model = base64.b64encode(gzip.compress(pack_model(features, arrays), mtime=0)).decode()
    page = template.render(
        title=f"Labels by {title}",
        script=Markup(script),
        style=Markup(style),
        script_hash=hash_source(script),
        style_hash=hash_source(style),
        model=model,
    )
    return page.encode()


def hash_source(source: str) -> str:
    """Return the hash of a script or style sheet for a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def pack_model(features: TextFeatures, arrays: LinearArrays) -> bytes:
    """Return the header as JSON after its length, and the arrays one after the other."""
    weights = arrays.weights
    scales = find_scales(weights, np.abs(weights.data), len(arrays.bias))
    sections = {
        "idf": features.idf.astype(np.float32),
        "terms": np.frombuffer("\n".join(term for terms in features.terms for term in terms).encode(), np.uint8),
        "slots": pack_slots(weights),
        "weights": np.rint(weights.data / scales[weights.indices]).astype(np.int8),
        "scales": scales,
        "bias": arrays.bias.astype(np.float32),
        "parents": arrays.parents.astype(np.int32),
        "slot_labels": arrays.slot_labels.astype(np.int32),
    }
    header = {
        "sections": [(name, str(values.dtype), values.nbytes) for name, values in sections.items()],
        "parts": [describe_part(part, terms) for part, terms in zip(features.parts, features.terms, strict=True)],
        "marks": find_ranges(combining_character_mask()),
        "dense": DENSE_SCRIPT_RANGES,
        "link": arrays.link,
        "labels": arrays.labels,
        "names": arrays.names,
        "trees": arrays.tree_starts.tolist(),
        "knots": arrays.knots.tolist(),
        "probabilities": arrays.probabilities.tolist(),
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join([np.uint32(len(text)).tobytes(), text, *(values.tobytes() for values in sections.values())])


def describe_part(part: dict[str, Any], terms: list[str]) -> dict[str, Any]:
    """Return the settings of an analyzer with the code points of its tokens, or of the space between chunks, so that
    the Unicode version of the browser does not matter."""
    mask = word_character_mask() if part["unit"] == WORD_UNIT else ~chunk_character_mask()
    return part | {"n_terms": len(terms), "ranges": find_ranges(mask)}


def find_ranges(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return (begin, end) of the runs of a mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def pack_slots(weights: csr_array) -> np.ndarray:
    """Return for each feature the number of its slots and their differences, as integers of 7 bits per byte."""
    counts = np.diff(weights.indptr)
    ordered = csr_array(weights)
    ordered.sort_indices()
    slots = ordered.indices.astype(np.int64)
    differences = np.diff(slots, prepend=0)
    firsts = weights.indptr[:-1][counts > 0]
    differences[firsts] = slots[firsts]
    numbers = np.insert(differences, weights.indptr[:-1], counts)
    n_bytes = np.maximum(1, -(-np.ceil(np.log2(numbers + 1)).astype(np.int64) // 7))
    place = np.arange(n_bytes.sum()) - np.repeat(np.cumsum(n_bytes) - n_bytes, n_bytes)
    parts = (np.repeat(numbers, n_bytes) >> (7 * place)) & 0x7F
    return (parts | np.where(place < np.repeat(n_bytes, n_bytes) - 1, 0x80, 0)).astype(np.uint8)
