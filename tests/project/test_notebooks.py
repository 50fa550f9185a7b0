"""Notebooks run from top to bottom in a Jupyter kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
if not FOLDER.exists():
    pytest.skip("the notebooks are in the checkout alone", allow_module_level=True)
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for needed in ("ipykernel", "pandas", "matplotlib", "torch"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module", params=sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def written(request):
    return nbformat.read(request.param, as_version=4)


def test_notebooks_have_no_outputs(written):
    nbformat.validate(written)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in written.cells)


@pytest.mark.filterwarnings("ignore")  # warnings of the kernel
def test_every_cell_runs(written, tmp_path):
    done = nbclient.NotebookClient(written.copy(), timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    shown = [output.data for output in outputs if "data" in output]
    assert "pass 2: loss" in said
    assert "95 % interval" in said
    assert any("image/png" in data for data in shown)  # the history
    assert any("<mark" in data.get("text/html", "") for data in shown)  # the explanation
    assert any(
        str(data.get("text/plain", "")).startswith("Classifier('bce_ae', epochs=12, held_out=0.1)") for data in shown
    )
