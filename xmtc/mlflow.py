"""MLflow flavour: log a Tagger to a run; `mlflow.pyfunc.load_model` and `mlflow models serve` predict with it.

The artifact is a model folder, which contains no code and no pickle. MLflow is not an extra, because who logs models
has it already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import xmtc
from xmtc.errors import MissingExtra
from xmtc.tagger import Tagger

TEXT_COLUMN = "text"


@dataclass(frozen=True)
class PyfuncModel:
    """Tagger with the interface of `mlflow.pyfunc`."""

    tagger: Tagger

    def get_raw_model(self) -> Tagger:
        return self.tagger

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a data frame with the labels and the scores of each row of a data frame with a column of texts."""
        from pandas import DataFrame

        predictions = self.tagger.predict_labels(list(model_input[TEXT_COLUMN]), **(params or {}))
        return DataFrame(
            {
                "labels": [[tag.label for tag in tags] for tags in predictions],
                "scores": [[tag.score for tag in tags] for tags in predictions],
            }
        )


def _load_pyfunc(data_path: str) -> PyfuncModel:
    """Open the model folder of a logged model; MLflow calls this function by its name."""
    return PyfuncModel(Tagger.load(data_path))


def log_model(tagger: Tagger, name: str = "model", **options: Any) -> Any:
    """Log a Tagger to the active MLflow run and return MLflow's ModelInfo.

    Texts, features and labels that the Tagger keeps for updates are not logged.

    Parameters
    ----------
    tagger : Tagger
        Trained on texts; `tagger_` of a Classifier.
    name : str, default="model"
        Name of the logged model.
    **options
        Arguments of `mlflow.pyfunc.log_model`, such as `registered_model_name`, or
        `pip_requirements=["xmtc[neural]"]` for a network.
    """
    try:
        import mlflow.pyfunc
    except ImportError:
        raise MissingExtra("log_model needs MLflow 3 or newer: pip install mlflow.") from None
    with TemporaryDirectory() as folder:
        return mlflow.pyfunc.log_model(name=name, **_write_model(tagger, Path(folder, "tagger"), options))


def _write_model(tagger: Tagger, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Write the model folder and return the arguments that describe it to MLflow."""
    replace(tagger, training=None).save(folder)
    defaults = {"signature": _make_signature(), "pip_requirements": [f"xmtc=={xmtc.__version__}"]}
    return {"loader_module": __name__, "data_path": str(folder), **defaults, **options}


def _make_signature() -> Any:
    """Return the input, the output and the parameters of a model, which MLflow validates."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string, TEXT_COLUMN)]),
        outputs=Schema([ColSpec(Array(DataType.string), "labels"), ColSpec(Array(DataType.double), "scores")]),
        params=ParamSchema([ParamSpec("k", DataType.long, 5), ParamSpec("threshold", DataType.double, 0.0)]),
    )
