"""Export of linear models to other programs: arrays with a NumPy reader, ONNX, and a web page that runs the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmtc.data.file_streams import check_outside_model_folder
from xmtc.errors import XmtcError
from xmtc.export.linear_arrays import LinearArrays, extract_arrays
from xmtc.export.text_features import describe_features
from xmtc.tagger import Tagger

DEFAULT_MAX_MB = 10.0  # size of a web page


def export_numpy(tagger: Tagger, arrays: LinearArrays, output: Path, max_mb: float | None) -> LinearArrays:
    from xmtc.export.numpy_folder import write_numpy_folder

    write_numpy_folder(describe_features(tagger), arrays, output)
    return arrays


def export_onnx(tagger: Tagger, arrays: LinearArrays, output: Path, max_mb: float | None) -> LinearArrays:
    from xmtc.export.onnx_graph import write_onnx_file

    write_onnx_file(arrays, output)
    return arrays


def export_web(tagger: Tagger, arrays: LinearArrays, output: Path, max_mb: float | None) -> LinearArrays:
    from xmtc.export.web_page import write_web_page

    size = DEFAULT_MAX_MB if max_mb is None else max_mb
    return write_web_page(describe_features(tagger), arrays, output, size, title=str(tagger.about["method"]))


EXPORT_FORMATS: dict[str, Callable[[Tagger, LinearArrays, Path, float | None], LinearArrays]] = {
    "numpy": export_numpy,
    "onnx": export_onnx,
    "web": export_web,
}


def export_model(
    tagger: Tagger, output: str | Path, format: str, *, max_mb: float | None = None, n_trees: int | None = None
) -> LinearArrays:
    """Write a linear model in a format of other programs.

    The exported model scores all labels, as the model itself does with `beam=0`.

    Parameters
    ----------
    tagger : Tagger
        Trained label trees or a one-vs-all model, with or without calibration.
    output : str or path
        Folder (`numpy`) or file to write; an existing file is replaced.
    format : str
        `numpy`, `onnx` or `web`.
    max_mb : float, optional
        Maximum size of a web page in megabytes (10⁶ bytes), 10 by default: the smallest weights are left out.
    n_trees : int, optional
        Number of label trees to export, all by default.

    Returns
    -------
    LinearArrays
        Exported arrays, rounded and pruned as in the output.

    Raises
    ------
    XmtcError
        If the model or its features cannot be exported in this format.
    """
    if format not in EXPORT_FORMATS:
        raise XmtcError(f"Unknown format {format!r:.100}; expected one of {', '.join(EXPORT_FORMATS)}.")
    if max_mb is not None and format != "web":
        raise XmtcError(f"max_mb={max_mb:g} is the size of a web page; the format is {format}.")
    if max_mb is not None and not 0 < max_mb < math.inf:
        raise XmtcError(f"max_mb={max_mb:g} is not a size; expected megabytes above 0, such as 5.")
    check_outside_model_folder(str(output))
    if format != "numpy" and Path(output).is_dir():
        raise XmtcError(f"{output} is a folder, expected a file to write; choose another name.")
    return EXPORT_FORMATS[format](tagger, extract_arrays(tagger, n_trees), Path(output), max_mb)


def measure_loss(tagger: Tagger, arrays: LinearArrays, documents: Any, metric: str) -> tuple[float, float]:
    """Return a metric of the model and of its exported arrays on labelled documents."""
    labelled = tagger.transform_labelled(documents)
    predictions = arrays.predict(labelled.data.X, tagger.model.n_labels)
    exported = tagger.evaluate_predictions(predictions, labelled.Y, [metric], unseen_labels=labelled.unseen_labels)
    return tagger.evaluate(labelled, [metric])[metric], exported[metric]
