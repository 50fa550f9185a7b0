"""`python -m experiments`: rows of a table, run with the commands of a user."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import Result
from commands import lines_of
from typer.testing import CliRunner

from experiments import rows
from experiments.__main__ import app
from experiments.commands import ExperimentContext
from experiments.datasets import find_catalogue_entry, load_catalogue
from experiments.page import build_ranks_table, render_table_markdown
from xmtc.analysis.measured_process import SOURCE_ROOT
from xmtc.analysis.result_files import load_results

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "experiments"

TABLE = """
title = "A table"
data = "tiny"
measures = ["P@1", "P@3"]
params = {max_leaf = 10}

[[row]]
name = "Parabel"
method = "parabel"
params = {n_trees = 1, C = 2}
published = {"P@1" = 50.0}
source = "A paper, Table 1"

[[row]]
name = "Parabel, two seeds"
method = "parabel"
seeds = [0, 1]

[[row]]
name = "broken"
method = "parabel"
params = {n_tres = 1}

[[row]]
name = "both"
combine = ["Parabel", "Parabel, two seeds, seed 1"]
rule = "mean"

[[row]]
name = "overlap"
compare = ["Parabel", "Parabel, two seeds, seed 1"]

[[row]]
name = "of a broken one"
combine = ["Parabel", "broken"]
"""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "tiny").mkdir()
    (folder / "tiny" / "train.jsonl").write_text(lines_of(200, seed=0))
    (folder / "tiny" / "test.jsonl").write_text(lines_of(40, seed=1))
    return folder


def run(folder: Path, corpora: Path, *words: str, table: str = TABLE) -> tuple[subprocess.CompletedProcess, dict]:
    """Run a table in its own folder; return the process and the stored results."""
    (folder / "table.toml").write_text(table)
    places = ["--data", corpora, "--work", folder / "work", "--results", folder, "--threads", "1"]
    command = [sys.executable, "-m", "experiments", "run", folder / "table.toml", *places, *words]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd=ROOT)
    kept = folder / "table.json"
    return done, json.loads(kept.read_text()) if kept.exists() else {}


def show_table(folder: Path, table: str) -> Result:
    (folder / "table.toml").write_text(table)
    return invoke("table", folder / "table.toml", "--results", folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpora):
    folder = tmp_path_factory.mktemp("whole")
    return folder, *run(folder, corpora, "--jobs", "2", "--machine", "a test")


def test_every_row_has_a_result(whole, corpora):
    _, done, kept = whole
    assert done.returncode == 1  # one row is broken
    assert set(kept) == {
        *("Parabel", "Parabel, two seeds, seed 0", "Parabel, two seeds, seed 1", "broken", "both", "overlap"),
        "of a broken one",
    }
    parabel = kept["Parabel"]
    assert parabel["command"] == [
        "xmtc train ../shared/data/tiny/train.jsonl -m parabel -p max_leaf=10 -p n_trees=1 -p C=2 "
        "-o models/table/parabel",
        "xmtc evaluate models/table/parabel ../shared/data/tiny/test.jsonl P@1 P@3 --json",
    ]
    assert set(parabel["figures"]) == {"P@1", "P@3"}
    assert 50 < parabel["figures"]["P@1"] <= 100
    assert parabel["train_s"] > 0
    assert 20 < parabel["peak_mb"] < 20_000
    assert parabel["machine"] == "a test"
    assert parabel["versions"]["python"].count(".") == 2
    assert parabel["commit"]
    assert "seed=1" in kept["Parabel, two seeds, seed 1"]["command"][0]
    assert str(corpora) not in json.dumps(kept)


def test_combinations_and_comparisons_use_models_of_other_rows(whole):
    _, _, kept = whole
    models = "models/table/parabel models/table/parabel-two-seeds-seed-1"
    assert kept["both"]["command"][0] == f"xmtc combine {models} -o models/table/both --rule mean"
    assert kept["both"]["figures"]["P@1"] > 50
    assert kept["overlap"]["command"] == [f"xmtc compare {models} --test ../shared/data/tiny/test.jsonl --json"]
    assert list(kept["overlap"]["figures"]) == ["top1", "top2", "top3", "top4", "top5"]


def test_failed_row_stores_the_error(whole):
    _, done, kept = whole
    assert "n_tres" in kept["broken"]["failed"]
    assert "n_trees" in kept["broken"]["failed"]  # the error message of the command
    assert kept["of a broken one"]["failed"] == "its member 'broken' has no model"
    assert "broken: failed: xmtc train ended with status" in done.stderr


def test_finished_rows_are_not_run_again(whole, corpora, tmp_path):
    folder, _, before = whole
    rows = ["--only", "Parabel", "--only", "both"]
    done, after = run(folder, corpora, *rows)
    assert (done.returncode, done.stdout, after) == (0, "", before)
    assert "Rows with stored results: 2" in done.stderr
    done, after = run(folder, corpora, *rows, table=TABLE.replace('["P@1", "P@3"]', '["P@1", "R@5"]'))
    assert done.returncode == 0
    assert set(after["Parabel"]["figures"]) == {"P@1", "R@5"}
    assert after["Parabel"]["train_s"] == before["Parabel"]["train_s"]  # the model still exists
    done, after = run(folder, corpora, "--only", "Parabel", table=TABLE.replace("C = 2", "C = 3"))
    assert "-p C=3" in after["Parabel"]["command"][0]
    assert after["both"]["figures"]


def test_members_of_a_requested_combination_are_trained(corpora, tmp_path):
    done, kept = run(tmp_path, corpora, "--only", "both", "--param", "n_trees=2", "--param", "vectors=none")
    assert done.returncode == 0, done.stderr
    assert set(kept) == {"Parabel", "Parabel, two seeds, seed 1", "both"}
    assert "-p n_trees=1" in kept["Parabel"]["command"][0]
    assert kept["Parabel"]["overrides"] == {"n_trees": "2"}  # the table has no vectors
    assert "overrides" not in kept["both"]
    about = json.loads((tmp_path / "work" / "table" / "parabel" / "about.json").read_text())
    assert about["parameters"]["n_trees"] == 2


def test_table_is_rendered(whole, corpora):
    folder, _, kept = whole
    figure = kept["Parabel"]["figures"]["P@1"]
    (folder / "table.json").write_text(json.dumps(kept))
    done = show_table(folder, TABLE + '[[row]]\nname = "new"\nmethod = "plt"\n')
    lines = done.stdout.splitlines()
    assert lines[0] == "A table"
    assert lines[2] == "|  | P@1 | P@3 | training s | CPU s | evaluation s | peak MB | model MB | source |"
    assert (
        "|  | top1 | top2 | top3 | top4 | top5 | training s | CPU s | evaluation s | peak MB | model MB | source |"
        in lines
    )
    assert f"| Parabel | {figure:.2f} (50.00, {figure - 50:+.2f}) |" in done.stdout
    assert "A paper, Table 1" in done.stdout
    assert "| Parabel, two seeds | " in done.stdout
    assert " ± " in next(line for line in lines if line.startswith("| Parabel, two seeds"))
    assert "| broken | failed: " in done.stdout
    assert "| new | not run |" in done.stdout


def test_noise_with_several_rates_and_kinds(tmp_path):
    path = tmp_path / "table.toml"
    noise = "noise = { missing = [0.1, 0.2], wrong = 0.3, seed = 1 }"
    path.write_text(f'data = "d"\nmeasures = []\nmethod = "plt"\n[[row]]\nname = "x"\n{noise}\n')
    found = {job.name: job.settings["noise"] for job in rows.load_experiment(path).rows}
    assert found["x, wrong 0.3"] == {"wrong": 0.3, "seed": 1}
    assert list(found) == ["x, missing 0.1", "x, missing 0.2", "x, wrong 0.3"]


def test_errors_are_escaped_in_tables(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text('data = "d"\nmeasures = ["P@1"]\n[[row]]\nname = "a|b"\nmethod = "plt"\n')
    table = render_table_markdown(rows.load_experiment(path), {"a|b": {"failed": "expected x|y"}})
    assert r"| a\|b | failed: expected x\|y |" in table


def test_training_beyond_the_time_limit_is_stored(corpora, tmp_path):
    done, kept = run(tmp_path, corpora, "--only", "Parabel", "--time-limit", "0.01s")
    assert done.returncode == 1
    assert kept["Parabel"]["failed"] == "xmtc train was ended after 0.01 s"


def test_each_corpus_has_its_own_table(corpora, tmp_path):
    table = TABLE.replace('data = "tiny"', 'data = ["tiny", "other"]')
    done = show_table(tmp_path, table)
    assert [line for line in done.stdout.splitlines() if line.endswith(":")] == ["tiny:", "tiny:", "other:", "other:"]
    assert "| Parabel | – (50.00) | not run |" in done.stdout
    assert "| broken | not run |" in done.stdout


NOISY = """
data = "tiny"
measures = ["P@1"]
method = "dismec"
[[row]]
name = "missing"
noise = {missing = 0.5}
held_out = 0.25
[[row]]
name = "flip"
noise = {flip = 0.01, seed = 3}
"""


def test_noise_is_added_only_to_training_documents(corpora, tmp_path):
    done, kept = run(tmp_path, corpora, "--jobs", "2", table=NOISY)
    assert done.returncode == 0, done.stderr
    assert kept["flip"]["command"][0].endswith("--kind flip --rate 0.01 --seed 3")
    split, noise, train, judge = kept["missing"]["command"]
    assert split.startswith("xmtc data split ../shared/data/tiny/train.jsonl ")
    assert noise.endswith("--kind missing --rate 0.5 --seed 0")
    made = tmp_path / "work" / "corpora"
    parts = {path.name: path.read_text().splitlines() for path in made.glob("*.jsonl")}
    clean, noisy = parts["tiny-0.25-train.jsonl"], parts["tiny-0.25-missing-0.5-seed-0.jsonl"]
    assert len(clean) == len(noisy) == 150
    n_labels = [sum(len(json.loads(line)["labels"]) for line in part) for part in (clean, noisy)]
    assert 0.3 < n_labels[1] / n_labels[0] < 0.7
    assert "missing-0.5-seed-0.jsonl" in train
    assert "tiny-0.25-test.jsonl" in judge
    assert len(parts["tiny-0.25-test.jsonl"]) == 50


STUDY = """
data = "tiny"
measures = ["P@1"]
documents = 100
clean = 0.2
seeds = [0, 1]
noise = {missing = [0.0, 0.3], flip = [0.1]}
[[row]]
name = "tuned"
method = "plt"
params = {C = 2}
tune = {min_df = [1, 2]}
train = ["--trials", "4"]
"""


def test_noise_study_tunes_each_rate_on_clean_documents(corpora, tmp_path):
    only = ["tuned, flip 0.1, seed 1"]
    done, kept = run(tmp_path, corpora, *(word for row in only for word in ("--only", row)), table=STUDY)
    assert done.returncode == 0, done.stderr
    count, split, noise, tune, judge = kept[only[0]]["command"]
    assert count.endswith("models/corpora/tiny-100-rest.jsonl models/corpora/tiny-100.jsonl --count 100")
    assert split.endswith(
        "tiny-100.jsonl models/corpora/tiny-100-0.2-train.jsonl models/corpora/tiny-100-0.2-clean.jsonl --share 0.2"
    )
    assert noise.endswith("--kind flip --rate 0.1 --seed 1")
    assert " -p C=2 -p seed=1 -s min_df=1,2 --trials 4 --valid models/corpora/tiny-100-0.2-clean.jsonl -o " in tune
    assert tune.startswith("xmtc tune models/corpora/tiny-100-0.2-flip-0.1-seed-1.jsonl -m plt")
    assert "../shared/data/tiny/test.jsonl" in judge
    names = {name for line in show_table(tmp_path, STUDY).stdout.splitlines() for name in [line[2:20]]}
    assert {"tuned, missing 0.0", "tuned, missing 0.3"} < names


def test_missing_data_is_reported(corpora, tmp_path):
    done, kept = run(tmp_path, corpora, table=TABLE.replace('data = "tiny"', 'data = "nowhere"'))
    assert done.returncode == 1
    assert "expected the corpus 'nowhere' in" in done.stderr
    assert "with --data" in done.stderr
    assert done.stderr.startswith("Not run: Parabel, Parabel, two seeds, seed 0, ")
    assert done.stderr.count("\n") == 1
    assert kept == {}
    done, _ = run(tmp_path, corpora, table=TABLE.replace('combine = ["Parabel",', 'combine = ["Paris",'))
    assert "'both' refers to 'Paris', but no row has this name" in done.stderr
    done, _ = run(tmp_path, corpora, table='data = "tiny"\nmeasures = ["P@1"]\n[[row]]\nname = "empty"')
    assert "row 'empty' must have name, data, measures and one of method, combine, compare." in done.stderr


def test_error_for_an_unknown_row_suggests_the_nearest(corpora, tmp_path):
    others = [f'[[row]]\nname = "other {number}"\nmethod = "plt"\n' for number in range(100)]
    done, _ = run(tmp_path, corpora, "--only", "Parabell", table=TABLE + "".join(others))
    assert done.returncode == 2
    assert "--only 'Parabell': not a row of " in done.stderr
    assert "; expected one of 106 names, such as 'Parabel', 'Parabel, two seeds', '" in done.stderr
    assert done.stderr.endswith("table.toml` prints all.\n")
    assert done.stderr.count("'") == 2 + 2 * 5
    head = TABLE.partition("[[row]]")[0]
    done, _ = run(tmp_path, corpora, "--only", "Nope", table=head + "".join(others[:2]))
    assert "expected one of 'other 1', 'other 0'; `python -m experiments table" in done.stderr


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.toml")), ids=lambda path: path.stem)
def test_experiment_files_are_valid(path):
    """Rows are complete, members are defined, and methods and parameters exist."""
    from xmtc.core.hyperparameters import UnparsedValue
    from xmtc.features import FEATURES, TEXTS
    from xmtc.pipeline import Pipeline

    jobs = rows.load_experiment(path).rows
    assert jobs
    assert tomllib.loads(path.read_text())["title"]
    for job in jobs:
        rows.find_members(job, jobs)
        assert job.settings.get("published", {}).keys() <= {
            *job.settings["measures"],
            *(f"top{k}" for k in range(1, 6)),
        }
        assert not job.settings.get("published") or job.settings.get("source")
        if "method" in job.settings:
            params = {
                name: UnparsedValue(value) for name, value in rows.flatten_parameters(job.settings["params"]).items()
            }
            seed = {} if job.seed is None else {"seed": UnparsedValue(str(job.seed))}
            content = FEATURES if job.settings.get("ending", "").startswith("txt") else TEXTS
            Pipeline.from_parameters(job.settings["method"], content, params | seed)


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.toml")), ids=lambda path: path.stem)
def test_training_and_evaluation_have_the_propensities_of_the_data_set(path):
    from xmtc.labels.propensity import PROPENSITIES
    from xmtc.methods import method_class

    for job in rows.load_experiment(path).rows:
        expected_name = find_catalogue_entry(job.settings["data"]).propensity
        if any(measure.startswith("PSP") for measure in job.settings["measures"]):
            evaluation = [*job.settings.get("evaluate", []), "--propensity", "default"]
            assert evaluation[evaluation.index("--propensity") + 1] == expected_name, job.name
        if job.settings.get("method") in ("proxml", "pfastrexml"):
            expected = PROPENSITIES[expected_name]
            method = method_class(job.settings["method"])(preset=job.settings["params"].get("preset", ""))
            assert (method.A, method.B) == (expected.A, expected.B), job.name


def test_published_minutes_are_shown_in_seconds(tmp_path):
    row = '[[row]]\nname = "slow"\nmethod = "plt"\ndata = "tiny"\nmeasures = ["P@1"]\npublished = {"P@1" = 80.0}\n'
    (tmp_path / "timed.toml").write_text(f'title = "Timed"\n{row}published_minutes = {{train_s = 1297.75}}\n')
    done = invoke("report", tmp_path / "page.md", tmp_path / "timed.toml", "--results", tmp_path)
    assert done.exit_code == 0, done.output
    assert "| – (77,865) |" in (tmp_path / "page.md").read_text()


def test_average_ranks_of_rank_ae_are_those_of_its_figures(tmp_path):
    """The printed ranks of P@k are those of the printed figures; four of nDCG@k are lower by up to 0.11."""
    _, header, lines = build_ranks_table(rows.load_experiment(TABLES / "rank_ae-table2.toml"))
    assert len(header) == 5
    assert len(lines) == 7
    for method, *ranks in lines:
        printed, ranked, printed_ndcg, ranked_ndcg = map(float, ranks)
        assert printed == ranked
        is_lower = method in ("fastxml", "pd_sparse", "fasttext", "bow_cnn")
        assert 0.05 < ranked_ndcg - printed_ndcg < 0.12 if is_lower else printed_ndcg == ranked_ndcg
    done = invoke("report", tmp_path / "page.md", TABLES / "rank_ae-table2.toml", "--results", tmp_path)
    assert done.exit_code == 0, done.output
    assert "| rank_ae | 1.78 | 1.78 | 1.89 | 1.89 |" in (tmp_path / "page.md").read_text()


# Parameters that an ablation changes; λ has the scale of the loss.
ABLATIONS = {
    "Rank-AE": set(),
    "no attention": {"attention"},
    "no ranking loss": {"loss", "balance"},
    "no labels as input": {"balance", "distance_weight"},
}


@pytest.mark.parametrize("table", ["rank_ae-ablation", "rank_ae-ablation-ours"])
def test_ablations_change_one_part(table):
    jobs = rows.load_experiment(TABLES / f"{table}.toml").rows
    params = {job.settings["name"]: job.settings["params"] for job in jobs}
    for name, own in params.items():
        corpus, _, variant = name.partition(", ")
        whole = params[f"{corpus}, Rank-AE"]
        assert {key for key in own | whole if own.get(key) != whole.get(key)} == ABLATIONS[variant], name
        assert own.get("attention", True) is (variant != "no attention")
        assert own.get("loss", "ranking") == ("bce" if variant == "no ranking loss" else "ranking")


def test_row_with_several_corpora_is_expanded(tmp_path):
    (tmp_path / "table.toml").write_text("""
        data = ["a", "b"]
        measures = ["P@1"]
        on = {b = {ending = "txt.gz"}}
        [[row]]
        name = "one"
        method = "parabel"
        [[row]]
        name = "both"
        combine = ["one", "one"]
    """)
    jobs = rows.load_experiment(tmp_path / "table.toml").rows
    assert [(job.name, job.settings["data"], job.settings.get("ending")) for job in jobs] == [
        ("one, a", "a", None),
        ("one, b", "b", "txt.gz"),
        ("both, a", "a", None),
        ("both, b", "b", "txt.gz"),
    ]
    assert [job.name for job in rows.find_members(jobs[3], jobs)] == ["one, b", "one, b"]


SLOW = """
data = "tiny"
measures = ["P@1"]
method = "parabel"
params = {max_leaf = 10}
[[row]]
name = "quick"
[[row]]
name = "slow"
data = "endless"
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_interrupted_run_resumes(corpora, tmp_path):
    shutil.copytree(corpora, tmp_path / "corpora")
    endless = tmp_path / "corpora" / "endless"
    shutil.copytree(corpora / "tiny", endless)
    (endless / "train.jsonl").unlink()
    os.mkfifo(endless / "train.jsonl")  # the training waits for this file
    (tmp_path / "table.toml").write_text(SLOW)
    places = ["--data", tmp_path / "corpora", "--work", tmp_path / "work", "--results", tmp_path, "--threads", "1"]
    command = [sys.executable, "-m", "experiments", "run", tmp_path / "table.toml", *places]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    begun, deadline = tmp_path / "work" / "table" / "slow.log", time.monotonic() + 120
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    kept = json.loads((tmp_path / "table.json").read_text())
    assert list(kept) == ["quick"]  # the other row was stopped, which is not a failure
    (endless / "train.jsonl").unlink()
    shutil.copy(corpora / "tiny" / "train.jsonl", endless)
    done, after = run(tmp_path, tmp_path / "corpora", table=SLOW)
    assert done.returncode == 0, done.stderr
    assert after["quick"] == kept["quick"]
    assert after["slow"]["figures"]["P@1"] > 0
    assert done.stdout.startswith("slow: ")
    assert "Rows with stored results: 1" in done.stderr


def test_networks_need_a_gpu_unless_selected(corpora, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    table = SLOW.replace('data = "endless"', 'wants = "GPU"\nparams = {n_trees = 1}')
    table += '[[row]]\nname = "both"\ncombine = ["quick", "slow"]\nrule = "mean"\n'
    done, kept = run(tmp_path, corpora, table=table)
    assert done.returncode == 1
    assert list(kept) == ["quick"]
    assert "Not run: slow, both: it needs a GPU and none was found; run it anyway with --only" in done.stderr
    done, kept = run(tmp_path, corpora, "--only", "both", table=table)
    assert done.returncode == 0, done.stderr
    assert set(kept) == {"quick", "slow", "both"}


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def test_page_contains_published_measured_and_missing_values(whole, corpora, tmp_path):
    folder, _, kept = whole
    table = TABLE + '[[row]]\nname = "far <away>"\nmethod = "plt"\ndata = "eur-lex-4k"\ncost = "an hour"\n'
    table += 'published = {"P@1" = 80.0}\nsource = "B"\n[[row]]\nname = "later"\nmethod = "plt"\n'
    (folder / "table.toml").write_text(table)
    (folder / "table.json").write_text(json.dumps(kept))
    done = invoke("report", tmp_path / "page.md", folder / "table.toml", "--results", folder, "--data", corpora)
    assert done.exit_code == 0, done.output
    figure = kept["Parabel"]["figures"]["P@1"]
    text = (tmp_path / "page.md").read_text()
    assert f"{figure:.2f} (50.00, {figure - 50:+.2f})" in text
    assert "– (80.00)" in text
    assert "no data; see `python -m experiments get eur-lex-4k`" in text
    assert "an hour" in text
    assert "not run yet" in text
    assert "failed: xmtc train ended with status 2" in text
    assert "-m parabel -p max_leaf=10 -p n_trees=1 -p C=2" in text
    assert "| A table | 5 | 4 |" in text
    assert "seed 1; a test; python " in text


def test_tables_are_found_by_path_or_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE)
    assert rows.find_table(str(path)) == path
    assert rows.find_table("rivals") == TABLES / "rivals.toml"
    assert "There is no table rivls; did you mean rivals?" in str(invoke("run", "rivls").exception)
    path.write_text("title = ")
    assert "is not a readable TOML file" in str(invoke("run", path).exception)
    path.write_text(TABLE)
    assert "--param vectors must be NAME=VALUE" in str(invoke("run", path, "--param", "vectors").exception)


def test_experiment_corpora_are_in_the_catalogue():
    known = {found.folder_name for found in load_catalogue().values()}
    assert {job.settings["data"] for path in TABLES.glob("*.toml") for job in rows.load_experiment(path).rows} <= known


def test_networks_are_ranked_over_the_corpora_of_texts(capsys):
    """`experiments/ranks.py` compares linear methods on all corpora, and networks on corpora of texts."""
    ranks = runpy.run_path(str(TABLES / "ranks.py"))
    stored = load_results(TABLES / "results" / "rivals.json")
    networks = {"AttentionXML", "XML-CNN", "XML-RNN", "Bow-CNN"}
    for picture, ranked in {"ranks": False, "ranks-texts": True}.items():
        found = ranks["print_tables"](ranks["GROUPS"][picture], stored)
        assert {"DiSMEC", "Parabel", "FastXML"} <= set(found.methods)
        assert (networks <= set(found.methods)) is ranked
        assert f"| {found.methods[0]} | {found.average[0]:.2f} | " in capsys.readouterr().out


def test_commands_contain_no_local_paths():
    place = ExperimentContext((Path("data"), Path("/cache")), Path("/there/models"), Path("results"))
    words = [
        "data",
        "split",
        "data/data/train.jsonl",
        "/there/models/data/x",
        "-p",
        "vectors=data/glove.txt",
        "/cache/x",
    ]
    shown = "xmtc data split ../shared/data/data/train.jsonl models/data/x -p vectors=../shared/data/glove.txt"
    assert place.format_command(words) == f"{shown} ../shared/data/x"


def test_results_of_concurrent_processes_are_all_stored(tmp_path):
    path, n = tmp_path / "results.json", 40
    program = "import sys; from pathlib import Path; from xmtc.analysis.result_files import save_result\n"
    program += f"for i in range({n}): save_result(Path(sys.argv[1]), f'{{sys.argv[2]}} {{i}}', {{}})"
    words = [sys.executable, "-c", program, str(path)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE_ROOT)}
    both = [subprocess.Popen([*words, name], env=environment) for name in ("one", "other")]
    assert [each.wait() for each in both] == [0, 0]
    assert len(load_results(path)) == 2 * n
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"]


ENCODER_TABLE = """
data = "tiny"
measures = ["P@1", "unseen@5"]
params = {vocabulary = "NAMES"}

[[row]]
name = "matcher"
method = "matcher"
params = {fine_tune = 1, encoder = "ENCODER", max_subwords = 20}

[[row]]
name = "together"
combine = ["matcher", "DiSMEC"]

[[row]]
name = "DiSMEC"
method = "dismec"
"""


def test_rows_of_encoders_run_with_a_tiny_one(corpora, tmp_path):
    """The commands of experiments/encoders.toml, which need a GPU for its encoders."""
    pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")
    from tiny_encoders import tiny_sentence_encoder

    names, parts = tmp_path / "names.tsv", [str(corpora / "tiny" / f"{part}.jsonl") for part in ("train", "test")]
    assert invoke("names", names, *parts).exit_code == 0
    assert names.read_text().splitlines()[0] == "id\tname"
    table = ENCODER_TABLE.replace("NAMES", str(names)).replace("ENCODER", tiny_sentence_encoder(32))
    done, kept = run(tmp_path, corpora, table=table)
    assert done.returncode == 0, done.stderr
    assert set(kept["matcher"]["figures"]) == {"P@1", "unseen@5"}
    assert kept["together"]["figures"]["P@1"] > 50
