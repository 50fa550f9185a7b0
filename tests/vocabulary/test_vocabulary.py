"""Tests of vocabularies: import from SKOS and tables, saving, and lookup by URI, id, notation and name."""

from __future__ import annotations

import gzip
import sys
from itertools import pairwise

import numpy as np
import pytest
from test_disk_arrays import is_mapped

from xmtc import XmtcError
from xmtc.storage.form import is_equal
from xmtc.text.string_index import NOT_FOUND
from xmtc.vocabulary import NO_CONCEPT, Vocabulary, import_files
from xmtc.vocabulary.builder import copy_spans, hash_lines, iterate_name_lines
from xmtc.vocabulary.vocabulary import ALTERNATIVE, COLLECTION, PREFERRED, SCHEME, hash_spans, local_id, normalize_name

ZOO = "http://zoo.org/"
TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix zoo: <http://zoo.org/> .

zoo:zoo a skos:ConceptScheme ; skos:prefLabel "The zoo"@en .
zoo:animal a skos:Concept ; skos:prefLabel "animal"@en, "eläin"@fi ; skos:notation "1" ;
    skos:topConceptOf zoo:zoo .
zoo:cat a skos:Concept ; skos:prefLabel "cat"@en, "kissa"@fi ; skos:altLabel "pussycat"@en, "katti"@fi ;
    skos:hiddenLabel "pusycat"@en ; skos:notation "1.1" ; skos:broader zoo:animal ; skos:inScheme zoo:zoo .
zoo:lion a skos:Concept ; skos:prefLabel "Lion"@en ; skos:inScheme zoo:zoo .
zoo:cat skos:narrower zoo:lion .
zoo:wildcat rdfs:label "wild cat"@en ; owl:deprecated true ; dct:isReplacedBy zoo:cat ; skos:inScheme zoo:zoo .
zoo:pets a skos:Collection ; skos:prefLabel "pets"@en ; skos:member zoo:furry .
zoo:furry a skos:Collection ; skos:member zoo:cat .
zoo:Person a owl:Class ; rdfs:label "not a concept"@en .
"""


@pytest.fixture(scope="module")
def turtle(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "zoo.ttl"
    path.write_text(TURTLE)
    return path


@pytest.fixture(scope="module")
def zoo(turtle):
    return import_files([str(turtle)])


def message(vocabulary: Vocabulary) -> dict:
    """Return all statements about each concept, without concept numbers."""
    return {
        vocabulary.uri(i): (
            sorted(vocabulary.names(i)),
            vocabulary.notations(i),
            sorted(map(vocabulary.uri, vocabulary.ancestors(i))),
            sorted(vocabulary.groups[group] for group in vocabulary.groups_of[i]),
            bool(vocabulary.deprecated[i]),
            [vocabulary.uri(other) for other in vocabulary.replacements[i]],
        )
        for i in range(len(vocabulary))
    }


def test_skos_statements_are_imported(zoo):
    result = message(zoo)
    assert set(result) == {ZOO + name for name in ("animal", "cat", "lion", "wildcat")}
    names, notations, above, groups, deprecated, replaced = result[ZOO + "cat"]
    assert ("cat", "en", PREFERRED) in names
    assert ("katti", "fi", ALTERNATIVE) in names
    assert len(names) == 5
    assert (notations, above, deprecated, replaced) == (["1.1"], [ZOO + "animal"], False, [])
    # the branch of pets contains the branch of furry animals
    assert groups == [ZOO + "furry", ZOO + "pets", ZOO + "zoo"]
    assert result[ZOO + "lion"][2] == [ZOO + "animal", ZOO + "cat"]  # narrower is the inverse of broader
    assert result[ZOO + "wildcat"] == ([("wild cat", "en", PREFERRED)], [], [], [ZOO + "zoo"], True, [ZOO + "cat"])


def test_names_in_languages(zoo):
    cat, lion = zoo.find("cat"), zoo.find("lion")
    assert zoo.languages[0] == "en"  # the language with most preferred names
    assert [zoo.name(cat), zoo.name(cat, "fi"), zoo.name(cat, "FI"), zoo.name(cat, "en-GB")] == [
        "cat",
        "kissa",
        "kissa",
        "cat",
    ]
    assert zoo.name(lion, "fi") == "Lion"  # fallback to any name
    assert [name.text for name in zoo.names(cat, "fi")] == ["kissa", "katti"]
    with pytest.raises(XmtcError, match="no names in 'sv'; it has en, fi"):
        zoo.name(cat, "sv")


def test_hierarchy_and_groups(zoo):
    animal, cat, lion = map(zoo.find, ("animal", "cat", "lion"))
    assert zoo.ancestors(lion) == [cat, animal]
    assert zoo.descendants(animal) == [cat, lion]
    pets, scheme = zoo.find_group("pets"), zoo.find_group("The zoo")
    assert [zoo.group_kinds[pets], zoo.group_kinds[scheme]] == [COLLECTION, SCHEME]
    assert zoo.members[pets] == [cat]
    assert len(zoo.members[scheme]) == 4
    assert zoo.find_group("nobody") == NO_CONCEPT


def test_cycle_of_broader_concepts_ends(tmp_path):
    path = tmp_path / "circle.tsv"
    path.write_text("id\tname\tbroader\na\tA\tb\nb\tB\ta\nc\tC\tc\n")
    circle = import_files([str(path)])
    assert [circle.ancestors(i) for i in range(3)] == [[1], [0], []]


@pytest.mark.parametrize("format", ["nt", "xml", "json-ld"])
@pytest.mark.parametrize("packed", [False, True])
def test_four_skos_syntaxes_are_equivalent(zoo, turtle, tmp_path, format, packed):
    from rdflib import Graph

    content = Graph().parse(turtle).serialize(format=format, encoding="utf-8")
    path = tmp_path / ("zoo" + {"nt": ".nt", "xml": ".rdf", "json-ld": ".jsonld"}[format] + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    assert message(import_files([str(path)])) == message(zoo)


def test_ntriples_equal_rdflib(tmp_path):
    """Compare the N-Triples reader with rdflib on difficult lines."""
    skos = "http://www.w3.org/2004/02/skos/core#"
    lines = [
        f"<u:1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{skos}Concept> . # a remark",
        "# a line of its own",
        "",
        f'<u:1> <{skos}prefLabel> "a \\"quoted\\" \\u00e4\\U0001F600 \\\\ name <x> ."@en-GB .',
        f'<u:1>  <{skos}altLabel>\t"plain, \\t tab" .',
        f'<u:1> <{skos}notation> "7"^^<http://x.org/type> .',
        f'<u:1> <{skos}note> "of no interest" .',
    ]
    path = tmp_path / "hard.nt"
    path.write_text("\n".join(lines) + "\n")
    ours = import_files([str(path)])
    assert message(ours) == message(import_files([str(path)], format="turtle"))
    assert [name.text for name in ours.names(0)] == ['a "quoted" ä😀 \\ name <x> .', "plain, \t tab"]


def write(path, text):
    path.write_text(text)
    return str(path)


def test_tables_are_imported(tmp_path):
    """Test id and name, Annif's URIs with notations, columns with titles, and one file per language."""
    plain = import_files([write(tmp_path / "label_names.tsv", "10\tdomestic trade\n1000\tfinancing\n")])
    assert [plain.name(i) for i in range(2)] == ["domestic trade", "financing"]
    annif = import_files([write(tmp_path / "annif.tsv", f"<{ZOO}cat>\tcat\t1.1\n<{ZOO}lion>\tlion\n")])
    assert (annif.uri(0), annif.notations(0), annif.notations(1)) == (ZOO + "cat", ["1.1"], [])

    titled = "URI,prefLabel,altLabel,Language,notation\nu:1,cat,puss|kitty,en,1.1\nu:1,kissa,,fi,\n"
    table = import_files([write(tmp_path / "titled.csv", titled)])
    assert [table.name(0, code) for code in ("en", "fi")] == ["cat", "kissa"]
    assert [name.text for name in table.names(0, "en")] == ["cat", "puss", "kitty"]

    wide = import_files([write(tmp_path / "wide.csv", 'uri,label_fi,label_sv\nu:1,"kissa, kotona",katt\n')])
    assert [wide.name(0, code) for code in ("fi", "sv")] == ["kissa, kotona", "katt"]

    german = import_files([write(tmp_path / "german.csv", "id;name_de\nu:1;Katze, zahm\n")])
    assert german.name(0, "de") == "Katze, zahm"

    files = [write(tmp_path / f"zoo-{code}.tsv", f"u:1\t{name}\n") for code, name in (("fi", "kissa"), ("sv", "katt"))]
    several = import_files(files)
    assert len(several) == 1
    assert [several.name(0, code) for code in ("fi", "sv")] == ["kissa", "katt"]

    full = "id\tname\tscheme\tdeprecated\treplaced_by\na\tA\ts1\ttrue\tb\nb\tB\ts1|s2\t\t\n"
    links = import_files([write(tmp_path / "full.tsv", full)])
    assert (links.deprecated.tolist(), links.replacements[0], links.groups_of[1]) == ([True, False], [1], [0, 1])


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.tsv", b"", "has no concepts"),
        ("a.tsv", b"name\tnotation\ncat\t1\n", "expected one called id or uri"),
        ("a.csv", b"ID,Bezeichnung\n1,Katze\n", "has the columns ID, Bezeichnung; expected one called name or label"),
        ("a.tsv", b"u:1\tcat\n\tdog\n", "row 2 has no id"),
        ("a.tsv", b"u:1\tc\xe4t\n", "line 1 is not UTF-8"),
        ("a.csv", b'id,name\nu:1,"cat\n', "correct its quotes"),
        ("a.nt", b"<u:1> <u:2>\n", "line 1: '<u:1> <u:2>' is not an N-Triples statement"),
        ("a.ttl", b"<u:1> a \n", "cannot be read as turtle"),
        ("a.rdf", b"<rdf", "cannot be read as xml"),
        ("a.jsonld", b"{", "cannot be read as json-ld"),
        ("a.docx", b"", "a.docx has an unknown extension"),
    ],
)
def test_invalid_files_are_rejected_with_a_reason(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(XmtcError, match=sentence):
        import_files([str(path)])


@pytest.mark.parametrize(
    "label",
    [
        "http://zoo.org/cat",
        "<http://zoo.org/cat>",
        " http://zoo.org/cat ",
        "https://zoo.org/cat",
        "http://zoo.org/cat/",
        "cat",
        "zoo:cat",
        "1.1",
        "CAT",
        "kissa",
        "Katti",
        "pusycat",
    ],
)
def test_concept_is_found_by_uri_id_notation_and_name(zoo, label):
    assert zoo.uri(zoo.find(label)) == ZOO + "cat"


@pytest.mark.parametrize("label", ["", "dog", "http://other.org/cat", "http://zoo.org/", "1.", "not a concept", "<>"])
def test_unknown_names_are_not_found(zoo, label):
    assert zoo.find(label) == NO_CONCEPT


def test_exact_matches_rank_first(tmp_path):
    rows = "id\tname\talternative\tnotation\na\tsun\tstar\t1\nb\tStar\t\tsun\nsun\tmoon\t\t\n"
    vocabulary = import_files([write(tmp_path / "sky.tsv", rows)])
    assert vocabulary.find_all("sun") == [2]  # an id is exact
    assert vocabulary.find_all("Sun") == [1, 0]  # a notation, then a preferred name
    assert vocabulary.find_all("star") == [1, 0]  # a preferred name, then an alternative one
    rows = "id\tname\tdeprecated\na\tsun\ttrue\nb\tsun\t\n"
    # concepts that are not deprecated
    assert import_files([write(tmp_path / "old.tsv", rows)]).find_all("sun") == [1, 0]


def test_full_uris_find_plain_ids(tmp_path):
    vocabulary = import_files([write(tmp_path / "ids.tsv", "p10\tawareness\n")])
    assert vocabulary.find("<http://www.yso.fi/onto/yso/p10>") == 0
    assert local_id("http://urn.fi/URN:NBN:fi:au:ykl:78.3") == "78.3"
    assert local_id("http://x.org/a#b") == "b"
    assert local_id("no uri: at all/x") == "no uri: at all/x"


def test_saved_vocabulary_is_complete_and_memory_mapped(zoo, tmp_path):
    zoo.save(tmp_path / "zoo")
    loaded = Vocabulary.load(tmp_path / "zoo")
    assert is_equal(zoo, loaded)
    assert is_mapped(loaded.terms.text)
    zoo.save(tmp_path / "zoo")  # saving replaces the folder


def test_folders_of_other_kinds_are_rejected(zoo, tmp_path):
    from xmtc import Tagger

    zoo.save(tmp_path / "zoo")
    with pytest.raises(XmtcError, match="is a vocabulary folder; expected a model"):
        Tagger.load(tmp_path / "zoo")
    with pytest.raises(XmtcError, match="expected a vocabulary folder, as written by `xmtc vocab import"):
        Vocabulary.load(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(XmtcError, match="choose another name so that nothing is lost"):
        zoo.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("hashed", 99),
        ("deprecated", None),
        ("broader.to", 99),
        ("broader.ends", 99),
        ("terms.ends", -1),
        ("terms.languages", 9),
        ("terms.kinds", 9),
        ("uris.table", 99),
    ],
)
def test_damaged_arrays_are_rejected(zoo, tmp_path, part, value):
    from dataclasses import replace

    *inner, name = part.split(".")
    holder = getattr(zoo, inner[0]) if inner else zoo
    array = getattr(holder, name).copy()
    if value is None:
        array = array[:-1]
    else:
        array[-1] = value
    damaged = replace(holder, **{name: array})
    (replace(zoo, **{inner[0]: damaged}) if inner else damaged).save(tmp_path / "zoo")
    with pytest.raises(XmtcError, match="is damaged"):
        Vocabulary.load(tmp_path / "zoo")


HARD_NAMES = [
    "cat",
    "  Big\tCAT ",
    "Straße",
    "ﬁn\u00a0de  siècle",
    "e\u0301",
    "¨",
    "a\u2028b\r c",
    "İ",
    "東京",
    "a" + "\u0301" * 40,
]


def test_hashes_of_many_names_equal_single_hashes():
    """Compare hash_lines with the hash of normalize_name of each line."""
    expected = np.empty(len(HARD_NAMES), np.uint64)
    for i, name in enumerate(HARD_NAMES):
        text = np.frombuffer(bytearray(normalize_name(name)), np.uint8)
        hash_spans(text, np.array([0]), np.array([len(text)]), expected[i : i + 1])
    assert hash_lines("\n".join(HARD_NAMES)).tolist() == expected.tolist()


def test_copy_spans_writes_parts_at_their_offsets():
    text, out = np.frombuffer(bytearray(b"abcdefgh"), np.uint8), np.full(8, ord("."), np.uint8)
    copy_spans(text, np.array([5, 0, 2]), np.array([8, 2, 2]), out, np.array([0, 4, 7]))
    assert out.tobytes() == b"fgh.ab.."


@pytest.mark.parametrize("chunk_names", [1, 2, 1000])
def test_chunks_of_names_hold_each_name_once(zoo, chunk_names):
    terms = zoo.terms
    chunks = list(iterate_name_lines(terms, chunk_names))
    lines = [line for chunk in chunks for line in chunk.split("\n")]
    spans = pairwise(terms.ends.tolist())
    assert lines == [terms.text[begin:end].tobytes().decode() for begin, end in spans]
    assert len(chunks) == -(-len(lines) // chunk_names)


def test_repeated_name_is_stored_once(tmp_path):
    rows = "id,name,alternative,language\na,cat,puss|puss,en\na,cat,cat,en\na,cat,,fi\n"
    (result,) = (import_files([write(tmp_path / "twice.csv", rows)]),)
    assert [(name.text, name.language) for name in result.names(0)] == [
        ("cat", "en"),
        ("cat", "fi"),
        ("puss", "en"),
        ("cat", "en"),
    ]


def test_error_without_rdflib_names_the_extra(turtle, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(XmtcError, match=r"zoo.ttl needs rdflib: pip install 'xmtc\[vocab\]'"):
        import_files([str(turtle)])


def test_hashes_equal_fnv_1a(zoo):
    """Compare the kernel with the definition of FNV-1a, with the high bits folded in."""
    text = np.frombuffer(bytearray(b"cat" + b"lion"), np.uint8)
    result = np.empty(2, np.uint64)
    hash_spans(text, np.array([0, 3]), np.array([3, 7]), result)
    expected = []
    for word in (b"cat", b"lion"):
        h = 14695981039346656037
        for byte in word:
            h = (h ^ byte) * 1099511628211 % 2**64
        expected.append(h ^ (h >> 32))
    assert result.tolist() == expected
    assert NOT_FOUND == NO_CONCEPT  # the lookup of URIs uses the same hash
