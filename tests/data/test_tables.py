"""Tables of other libraries and queries on SQLite as corpora, and predictions as tables of the same library."""

from __future__ import annotations

import sqlite3
from urllib.parse import quote

import pyarrow
import pytest

from xmtc import Classifier, XmtcError, open_corpus, train
from xmtc.data.records import Fields

ROWS = {
    "id": ["a", "b", "c", "d"],
    "title": ["Fish", "Moon", "Rye", "Sea"],
    "text": ["herring in the sea", "a rocket to the moon", "rye and yeast in the oven", "ships on the sea"],
    "labels": [["fish", "sea"], ["space"], ["bread"], ["sea"]],
}


def make_polars():
    return pytest.importorskip("polars").DataFrame(ROWS)


def make_pandas():
    return pytest.importorskip("pandas").DataFrame(ROWS)


def make_duckdb():
    duckdb = pytest.importorskip("duckdb")
    table = pyarrow.table(ROWS)
    return duckdb.connect().from_arrow(table)


def make_data_set():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(ROWS).select(range(4))


def make_reader():
    return pyarrow.table(ROWS).to_reader()


MAKERS = {
    "polars": make_polars,
    "pandas": make_pandas,
    "pyarrow": lambda: pyarrow.table(ROWS),
    "reader": make_reader,
    "duckdb": make_duckdb,
    "datasets": make_data_set,
}
everything = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@everything
def test_tables_are_corpora(make):
    corpus = open_corpus(make())
    expected = list(zip(ROWS["id"], ROWS["text"], ROWS["labels"], strict=True))
    for _ in range(2):  # also a stream can be read repeatedly
        assert [(document.id, document.text, document.labels) for document in corpus] == expected
    titles = open_corpus(make(), fields=Fields(text="title,text", labels=None))
    assert next(iter(titles)).text == "Fish herring in the sea"


@everything
def test_classifiers_fit_and_predict_tables(make):
    classifier = Classifier(min_df=1, calibrate=False).fit(make())
    expected = Classifier(min_df=1, calibrate=False).fit(ROWS["text"], ROWS["labels"])
    assert classifier.predict(make(), k=1) == expected.predict(ROWS["text"], k=1)
    assert classifier.evaluate(make(), metrics="P@1") == classifier.evaluate(ROWS["text"], ROWS["labels"], "P@1")
    again = Classifier(min_df=1, calibrate=False).partial_fit(make()).partial_fit(make())
    assert again.predict(make(), k=1) == classifier.predict(make(), k=1)
    assert train(open_corpus(make()), min_df=1).labels.words() == ["bread", "fish", "sea", "space"]


@pytest.mark.parametrize("name", ["polars", "pandas", "pyarrow", "duckdb", "datasets"])
def test_predictions_are_a_column_of_the_same_kind(name):
    classifier = Classifier(min_df=1, calibrate=False).fit(ROWS["text"], ROWS["labels"])
    table = MAKERS[name]()
    result = classifier.predict_table(table, k=1)
    kind = pyarrow.Table if name == "duckdb" else type(table)
    assert isinstance(result, kind)
    labels = result["predictions"]
    values = labels.to_pylist() if isinstance(result, pyarrow.Table) else [list(row) for row in labels]
    assert values == classifier.predict(ROWS["text"], k=1)
    assert "predictions" not in (table.column_names if hasattr(table, "column_names") else table.columns)


def test_missing_columns_and_nulls_are_reported():
    with pytest.raises(XmtcError, match="table of pyarrow"):
        open_corpus(pyarrow.table({"text": ["a"]})).__iter__().__next__()
    with pytest.raises(XmtcError, match="row 2"):
        list(open_corpus(pyarrow.table({"text": ["a", "b"], "labels": [["x"], None]})))


def test_lazy_frames_are_refused_with_the_remedy():
    polars = pytest.importorskip("polars")
    frame = polars.LazyFrame(ROWS)
    with pytest.raises(XmtcError, match=r"frame.collect\(\)"):
        open_corpus(frame)
    assert len(list(open_corpus(frame.collect()))) == len(ROWS["id"])


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "my books.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE books (id TEXT, text TEXT, labels TEXT)")
        rows = zip(ROWS["id"], ROWS["text"], map("|".join, ROWS["labels"]), strict=True)
        connection.executemany("INSERT INTO books VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def test_queries_on_sqlite_are_corpora(database, monkeypatch):
    monkeypatch.chdir(database.parent)
    query = "SELECT id, text, labels FROM books WHERE id IN ('a', 'b') AND 'a cat' LIKE '%ca%' ORDER BY id"
    relative = open_corpus(f"sqlite:///my books.db?query={query}")
    absolute = open_corpus(f"sqlite:///{quote(str(database))}?query={quote(query)}")
    expected = list(zip(ROWS["id"], ROWS["text"], ROWS["labels"], strict=True))[:2]
    for corpus in (relative, absolute):
        assert [(document.id, document.text, document.labels) for document in corpus] == expected
        assert corpus.format == "sqlite"


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM books",
        "INSERT INTO books VALUES ('x', 'y', 'z')",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA journal_mode=WAL",
        "SELECT nothing FROM books",
        "SELECT id FROM books; DROP TABLE books",
        "not sql",
    ],
)
def test_databases_are_not_changed(database, query, monkeypatch):
    monkeypatch.chdir(database.parent)
    before = database.read_bytes()
    with pytest.raises(XmtcError):
        list(open_corpus(f"sqlite:///{database}?query={query}"))
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


def test_wrong_addresses_are_refused(database, tmp_path):
    for address in (f"sqlite:///{database}", "sqlite:///?query=SELECT 1", f"sqlite:///{tmp_path}/no.db?query=SELECT 1"):
        with pytest.raises(XmtcError):
            open_corpus(address)
