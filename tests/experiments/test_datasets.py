"""Catalogue of data sets: descriptions, and verification of files."""

from __future__ import annotations

import pytest
from commands import lines_of
from typer.testing import CliRunner

from experiments import datasets as catalogue
from experiments.__main__ import app
from experiments.datasets import CatalogueEntry, compare_counts, compute_counts, find_catalogue_entry
from xmtc.errors import XmtcError


def said(*words: object):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.mark.parametrize("found", catalogue.load_catalogue().values(), ids=lambda found: found.name)
def test_entry_is_complete(found):
    """Presets and propensities exist, and counts have sources."""
    from xmtc.labels.propensity import PROPENSITIES
    from xmtc.methods import method_class

    assert found.about
    assert found.licence
    assert found.content in ("texts", "features", "texts or features")
    assert found.published
    assert all(
        entry["source"] and entry.keys() - {"source"} <= catalogue.COUNT_TITLES.keys() for entry in found.published
    )
    assert found.propensity in PROPENSITIES
    assert found.presets.keys() == {"texts", "features"}
    for methods in found.presets.values():
        for method, preset in methods.items():
            if method in ("attention_xml", "xml_rnn", "aplc_xlnet", "rank_ae", "xml_cnn"):
                pytest.importorskip("torch")
            assert preset in method_class(method).presets
    assert all(len(sum) == 64 for sum in found.sha256.values())


def test_names_are_found_in_any_case():
    assert find_catalogue_entry("eur-lex-4k").name == "EUR-Lex-4K"
    assert find_catalogue_entry("eurlex-4k").name == "EUR-Lex-4K-APLC"
    with pytest.raises(XmtcError, match="did you mean Wiki10-31K"):
        find_catalogue_entry("wiki10-31")
    for name in ("EUR-Lex-4K", "Wiki10-31K", "AmazonCat-13K", "Amazon-670K", "Wiki-500K", "Amazon-3M", "RCV1"):
        assert find_catalogue_entry(name).folder_name == name.lower()


def test_list_shows_available_data_sets(tmp_path):
    (tmp_path / "delicious").mkdir()
    for part in ("train", "test"):
        (tmp_path / "delicious" / f"{part}.txt").write_text("1 2 2\n0 0:1\n")
    lines = said("datasets", "-o", tmp_path).output.splitlines()
    assert next(line for line in lines if line.startswith("delicious")).endswith(f"({tmp_path / 'delicious'})")
    assert next(line for line in lines if line.startswith("Wiki10-31K")).endswith("(not here)")
    assert "14,146 + 6,616 documents, 30,938 labels" in "\n".join(lines)


def test_missing_data_set_names_its_folder(tmp_path):
    done = said("get", "amazon-670k", "-o", tmp_path)
    assert "490,449 + 153,025 documents, 670,091 labels" in done.output
    assert "Extreme Classification Repository" in done.output
    sentence = str(done.exception)
    assert f"is not in {tmp_path / 'amazon-670k'}. Download it, store it there as train.txt and test.txt" in sentence
    assert "train.jsonl and test.jsonl" in sentence
    assert isinstance(done.exception, XmtcError)
    assert not list(tmp_path.iterdir())


def test_default_folder_is_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert str(tmp_path / "xmtc" / "corpora" / "mediamill") in str(said("get", "Mediamill").exception)


def test_statistics_of_files_are_compared_with_the_catalogue(tmp_path):
    place = tmp_path / "amazon-670k"
    place.mkdir()
    (place / "train.txt").write_text("3 135909 670091\n0,1 0:1 5:1\n1 2:1\n0 3:0.5\n")
    (place / "test.txt").write_text("1 135909 670091\n2 0:1\n")
    out = said("get", "amazon-670k", "-o", tmp_path).output
    assert "  differs: training documents: 3; published: 490,449 (APLC-XLNet, Table 1)" in out
    assert "  features: 135,909; published: 135,909 (APLC-XLNet, Table 1)" in out
    assert "  differs: labels: 3; published: 670,091 (APLC-XLNet, Table 1); 670,091 (AttentionXML, appendix A)" in out
    assert f"xmtc train {place / 'train.txt'} -m sleec -p preset=Amazon-670K -o model" in out
    assert "attention_xml" not in out  # a method that reads texts
    assert "PSP@5 --propensity amazon" in out
    quick = said("get", "amazon-670k", "-o", place, "--quick").output  # the folder of the data set itself is accepted
    assert "differs" not in quick
    assert "-m sleec" in quick


def test_texts_are_counted_and_networks_use_presets(tmp_path):
    place = tmp_path / "eur-lex-4k"
    place.mkdir()
    for part in ("train", "test"):
        (place / f"{part}.jsonl").write_text(lines_of(20, seed=0))
    out = said("get", "EUR-Lex-4K", "-o", tmp_path).output
    assert "differs: training documents: 20; published: 15,449" in out
    assert "features" not in out
    assert "-m attention_xml -p preset=EUR-Lex -p vectors=glove.840B.300d.txt -o model" in out
    assert "-m xml_rnn -p preset=EUR-Lex-2018 -p vectors=glove.840B.300d.txt -o model" in out
    assert "aplc_xlnet" not in out  # the papers have different versions of EUR-Lex


def test_every_version_of_eur_lex_has_one_paper():
    """The papers' counts differ, so their tables have data sets of their own."""
    for name, source in (("4K", "AttentionXML"), ("4K-APLC", "APLC-XLNet"), ("3993", "Rank-AE")):
        (published,) = find_catalogue_entry(f"EUR-Lex-{name}").published
        assert published["source"].startswith(source)


def test_averages_are_of_training_or_all_documents(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": ["x"]}\n')
    (tmp_path / "test.jsonl").write_text('{"text": "c", "labels": ["z", "x", "y"]}\n')
    counted = compute_counts(tmp_path / "train.jsonl", tmp_path / "test.jsonl")
    assert counted == [
        {"train": 2, "test": 1, "labels": 3, "labels_per_document": 1.5, "documents_per_label": 1.5},
        {"train": 2, "test": 1, "labels": 3, "labels_per_document": 2.0, "documents_per_label": 2.0},
    ]
    papers = [
        {"source": "A", "train": 2, "test": 2, "labels_per_document": 1.5},
        {"source": "B", "documents_per_label": 2},
    ]
    found = CatalogueEntry("x", "x", "texts", "x", "x", papers, {"texts": {}, "features": {}})
    assert list(compare_counts(found, counted)) == [
        ("training documents", "2", "2 (A)", True),
        ("test documents", "1", "2 (A)", False),
        ("labels", "3", "nothing", True),
        ("labels per document", "1.50 or, with test documents, 2.00", "1.50 (A)", True),
        ("documents per label", "1.50 or, with test documents, 2.00", "2 (B)", True),
    ]


def test_files_with_other_checksums_are_reported(tmp_path):
    (tmp_path / "cve-libraries").mkdir()
    for part in ("train", "test"):
        (tmp_path / "cve-libraries" / f"{part}.jsonl.gz").write_bytes(lines_of(5, seed=0).encode())
    out = said("get", "cve-libraries", "-o", tmp_path).output
    assert "differs: checksum of train.jsonl.gz and test.jsonl.gz" in out
