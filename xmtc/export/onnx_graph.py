"""Linear models as an ONNX graph that takes features.

ONNX has no operators for Unicode normalisation and word boundaries, so that text cannot be an input. The weights stay
sparse: the graph gathers the rows of the features that a batch has, and adds them up by document and slot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.export.linear_arrays import LinearArrays
from xmtc.linear.model import FIRST_STEP_LABELS
from xmtc.methods.ensemble.calibrated_model import RAW_SCORE_WEIGHT
from xmtc.storage.atomic import atomic_file

OPSET = 18
MAX_FILE_BYTES = 2**31 - 2**20  # of a protobuf message
DESCRIPTION = "Labels for sparse features: rows, columns and values of the cells of a batch, the number of rows, and k."


class GraphBuilder:
    """Nodes and constants of an ONNX graph, which are numbered."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, n_outputs: int = 1, output: str = "", **attributes: Any) -> Any:
        """Add a node and return the name of its output, or of all outputs."""
        from onnx import helper

        names = [output or f"v{len(self.nodes)}_{i}" for i in range(n_outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if n_outputs == 1 else names

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, dtype, order="C"), name))
        return name


def write_onnx_file(arrays: LinearArrays, output: Path) -> None:
    """Write the graph; the metadata of the file have the labels and their names as JSON."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError as error:
        raise as_missing_extra("Export with format onnx", error) from error

    graph = build_graph(arrays)
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("rows", TensorProto.INT64, ["n_cells"]),
            ("columns", TensorProto.INT64, ["n_cells"]),
            ("values", TensorProto.FLOAT, ["n_cells"]),
            ("n_rows", TensorProto.INT64, [1]),
            ("k", TensorProto.INT64, [1]),
        )
    ]
    outputs = [
        helper.make_tensor_value_info("labels", TensorProto.INT64, ["n_rows", "k"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n_rows", "k"]),
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "xmtc", inputs, outputs, graph.constants, DESCRIPTION),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=9,
        producer_name="xmtc",
    )
    helper.set_model_props(model, {"labels": json.dumps(arrays.labels), "names": json.dumps(arrays.names)})
    if model.ByteSize() > MAX_FILE_BYTES:
        raise XmtcError(
            f"The model needs {model.ByteSize() / 1e9:.1f} GB, and a file of ONNX holds 2 GB; export fewer label trees "
            "with --trees, or with --format numpy."
        )
    onnx.checker.check_model(model)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(output) as file:
        file.write(model.SerializeToString())


def build_graph(arrays: LinearArrays) -> GraphBuilder:
    """Return the graph from features to the best labels and their scores."""
    graph = GraphBuilder()
    logs = add_link(graph, add_margins(graph, arrays), arrays.link)
    scores = add_mean_of_trees(graph, add_path_sums(graph, logs, arrays), arrays)
    n_labels = graph.constant([len(arrays.labels)])
    k = graph.add("Min", "k", n_labels)
    best, _ = graph.add("TopK", scores, k, n_outputs=2, axis=1)
    labels = graph.nodes[-1].output[1]
    graph.add("Identity", labels, output="labels")
    graph.add("Identity", add_calibration(graph, best, arrays), output="scores")
    return graph


def add_margins(graph: GraphBuilder, arrays: LinearArrays) -> str:
    """Return margins, shape (n_rows, n_slots). Cell i has lengths[i] weights; `owner` is the cell of each weight."""
    zero, one = graph.constant(0), graph.constant(1)
    starts = graph.constant(arrays.weights.indptr)
    begin = graph.add("Gather", starts, "columns")
    lengths = graph.add("Sub", graph.add("Gather", starts, graph.add("Add", "columns", one)), begin)
    total = graph.add("ReduceSum", lengths, keepdims=0)
    first = graph.add("CumSum", lengths, zero, exclusive=1)  # of the weights of each cell
    marks = graph.add("Expand", zero, graph.add("Unsqueeze", graph.add("Add", total, one), graph.constant([0])))
    ones = graph.add("Expand", one, graph.add("Shape", lengths))
    marks = graph.add("ScatterElements", marks, first, ones, reduction="add")
    positions = graph.add("Range", zero, total, one)
    owner = graph.add("Gather", graph.add("Sub", graph.add("CumSum", marks, zero), one), positions)
    offset = graph.add("Gather", graph.add("Sub", begin, first), owner)
    at = graph.add("Add", positions, offset)
    slots = graph.add("Gather", graph.constant(arrays.weights.indices, np.int32), at)
    slots = graph.add("Cast", slots, to=7)  # INT64
    products = graph.add(
        "Mul",
        graph.add("Gather", graph.constant(arrays.weights.data, np.float32), at),
        graph.add("Gather", "values", owner),
    )
    n_slots = graph.constant([len(arrays.bias)])
    cells = graph.add("Add", graph.add("Mul", graph.add("Gather", "rows", owner), n_slots), slots)
    empty = graph.add("Expand", graph.constant(0, np.float32), graph.add("Mul", "n_rows", n_slots))
    sums = graph.add("ScatterElements", empty, cells, products, reduction="add")
    shape = graph.add("Concat", "n_rows", n_slots, axis=0)
    return graph.add("Add", graph.add("Reshape", sums, shape), graph.constant(arrays.bias, np.float32))


def add_link(graph: GraphBuilder, margins: str, link: str) -> str:
    """Return log P(slot | parent)."""
    if link == "logistic":
        return graph.add("Neg", graph.add("Softplus", graph.add("Neg", margins)))
    hinge = graph.add("Relu", graph.add("Sub", graph.constant(1, np.float32), margins))
    square = graph.add("Mul", hinge, hinge)
    return graph.add("Neg", square if link == "squared_hinge" else graph.add("Mul", square, hinge))


def add_path_sums(graph: GraphBuilder, logs: str, arrays: LinearArrays) -> str:
    """Return the log probability of every label in every tree, shape (n_rows, n_trees · n_labels)."""
    leaves = np.full((arrays.n_trees, len(arrays.labels)), NO_LABEL)
    trees = np.searchsorted(arrays.tree_starts, np.arange(len(arrays.bias)), side="right") - 1
    is_leaf = arrays.slot_labels != NO_LABEL
    leaves[trees[is_leaf], arrays.slot_labels[is_leaf]] = np.flatnonzero(is_leaf)
    path, total = leaves.reshape(-1), ""
    padded = graph.add("Pad", logs, graph.constant([0, 0, 0, 1]))  # the last column is the log probability of the root
    while (path >= 0).any():
        step = graph.add("Gather", padded, graph.constant(np.where(path < 0, len(arrays.bias), path)), axis=1)
        total = graph.add("Add", total, step) if total else step
        path = np.where(path < 0, -1, arrays.parents[path])
    return total


def add_mean_of_trees(graph: GraphBuilder, logs: str, arrays: LinearArrays) -> str:
    """Return the scores of all labels, shape (n_rows, n_labels); a tree only counts for its best labels."""
    if arrays.n_trees == 1:
        return graph.add("Exp", logs)
    n_labels = len(arrays.labels)
    shape = graph.add("Concat", "n_rows", graph.constant([arrays.n_trees, n_labels]), axis=0)
    probabilities = graph.add("Exp", graph.add("Reshape", logs, shape))
    k = graph.constant([min(FIRST_STEP_LABELS, n_labels)])
    _, best = graph.add("TopK", graph.add("Reshape", logs, shape), k, n_outputs=2, axis=2)
    kept = graph.add("GatherElements", probabilities, best, axis=2)
    empty = graph.add("Expand", graph.constant(0, np.float32), shape)
    sparse = graph.add("ScatterElements", empty, best, kept, axis=2)
    return graph.add("ReduceMean", sparse, graph.constant([1]), keepdims=0)


def add_calibration(graph: GraphBuilder, scores: str, arrays: LinearArrays) -> str:
    """Return calibrated scores: linear interpolation between the knots, as numpy.interp."""
    if not len(arrays.knots):
        return scores
    knots, values = arrays.knots, arrays.probabilities
    raw = graph.add("Cast", scores, to=11)  # DOUBLE
    clipped = graph.add("Clip", raw, graph.constant(knots[0], np.float64), graph.constant(knots[-1], np.float64))
    is_above = graph.add(
        "GreaterOrEqual", graph.add("Unsqueeze", clipped, graph.constant([2])), graph.constant(knots, np.float64)
    )
    rank = graph.add("ReduceSum", graph.add("Cast", is_above, to=7), graph.constant([2]), keepdims=0)
    segment = graph.add("Sub", rank, graph.constant(1))
    slopes = np.append(np.diff(values) / np.maximum(np.diff(knots), np.finfo(float).tiny), 0.0)
    distance = graph.add("Sub", clipped, graph.add("Gather", graph.constant(knots, np.float64), segment))
    slope = graph.add("Gather", graph.constant(slopes, np.float64), segment)
    curve = graph.add(
        "Add", graph.add("Gather", graph.constant(values, np.float64), segment), graph.add("Mul", slope, distance)
    )
    unit = graph.add("Clip", raw, graph.constant(0.0, np.float64), graph.constant(1.0, np.float64))
    mixed = graph.add(
        "Add",
        graph.add("Mul", curve, graph.constant(1 - RAW_SCORE_WEIGHT, np.float64)),
        graph.add("Mul", unit, graph.constant(RAW_SCORE_WEIGHT, np.float64)),
    )
    return graph.add("Cast", mixed, to=1)  # FLOAT
