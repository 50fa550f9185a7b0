"""Malicious vocabulary files: parsers open no other file, and errors are one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "campaigns"))

from audited import watch_access

from xmtc.core.child_process import TaskLimits
from xmtc.errors import XmtcError
from xmtc.vocabulary import import_files

pytest.importorskip("rdflib")

SKOS = "http://www.w3.org/2004/02/skos/core#"
TYPE = f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{SKOS}Concept>"
NAME = f"<{SKOS}prefLabel>"
CONTEXT = {"skos": SKOS, "name": {"@id": "skos:prefLabel"}}
CONCEPT = {"@id": "http://x/1", "@type": "skos:Concept", "name": "one"}
XML = f'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="{SKOS}">%s</rdf:RDF>'
XML_CONCEPT = '<skos:Concept rdf:about="http://x/1"><skos:prefLabel>%s</skos:prefLabel></skos:Concept>'


def import_content(folder: Path, name: str, content: str | bytes):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with watch_access(folder):
        return import_files([str(path)])


def import_error(folder: Path, name: str, content: str | bytes) -> str:
    """Return the error message of the import of a file."""
    with pytest.raises(XmtcError) as raised:
        import_content(folder, name, content)
    return str(raised.value).replace(f"{folder}/", "")


class TestJSONLD:
    @pytest.mark.parametrize(
        "context",
        [
            "http://127.0.0.1:9/context.jsonld",
            "file:///etc/passwd",
            "other.jsonld",
            [CONTEXT, "http://127.0.0.1:9/"],
            CONTEXT | {"@import": "http://127.0.0.1:9/"},
            CONTEXT | {"name": {"@id": "skos:prefLabel", "@context": "http://127.0.0.1:9/"}},
        ],
    )
    def test_remote_context_is_rejected(self, tmp_path, context):
        (tmp_path / "other.jsonld").write_text(json.dumps({"@context": CONTEXT}))
        sentence = import_error(tmp_path, "v.jsonld", json.dumps({"@context": context, "@graph": [CONCEPT]}))
        address = next(each for each in ("http://127.0.0.1:9/", "file:", "other") if each in json.dumps(context))
        assert sentence.startswith(f"v.jsonld has the external @context '{address}")
        assert sentence.endswith(
            "which is not opened; expected the context in the file: insert it, or convert the file to expanded JSON-LD "
            "or Turtle."
        )

    def test_context_of_a_node_is_rejected(self, tmp_path):
        node = CONCEPT | {"@context": "http://127.0.0.1:9/"}
        sentence = import_error(tmp_path, "v.jsonld", json.dumps([{"@context": CONTEXT}, {"@graph": [[node]]}]))
        assert sentence.startswith("v.jsonld has the external @context 'http://127.0.0.1:9/'")

    def test_inline_context_is_read(self, tmp_path):
        found = import_content(tmp_path, "v.jsonld", json.dumps({"@context": [None, CONTEXT], "@graph": [CONCEPT]}))
        assert found.uri(0) == "http://x/1"

    @pytest.mark.parametrize("content", ["[" * 100_000, '{"@graph":' * 10_000, '{"@id": "\\ud800"', "", "\xff"])
    def test_damage_gives_a_one_line_error(self, tmp_path, content):
        assert import_error(tmp_path, "v.jsonld", content).startswith("v.jsonld cannot be read as json-ld (")

    def test_lone_surrogate_is_rejected(self, tmp_path):
        content = {"@context": CONTEXT, **CONCEPT, "@id": "http://x/\ud800"}
        assert import_error(tmp_path, "v.jsonld", json.dumps(content)) == (
            "v.jsonld: The address 'http://x/\\ud800' holds half of a surrogate pair; expected valid Unicode."
        )


class TestXML:
    def test_short_entities_are_read(self, tmp_path):
        content = f'<!DOCTYPE rdf:RDF [<!ENTITY x "http://x/">]>{XML}' % '<skos:Concept rdf:about="&x;1"/>'
        assert import_content(tmp_path, "v.rdf", content).uri(0) == "http://x/1"

    @pytest.mark.parametrize(
        "declared",
        [
            '<!ENTITY a "ha"><!ENTITY e "&a;&a;">',
            '<!ENTITY e SYSTEM "file:///etc/passwd">',
            '<!ENTITY e SYSTEM "http://127.0.0.1:9/">',
            '<!ENTITY e PUBLIC "x" "http://127.0.0.1:9/">',
            '<!ENTITY % e SYSTEM "http://127.0.0.1:9/"> %e;',
            f'<!ENTITY e "{"x" * 1001}">',
        ],
    )
    def test_other_entities_are_rejected(self, tmp_path, declared):
        content = f"<!DOCTYPE rdf:RDF [{declared}]>{XML % (XML_CONCEPT % '&e;')}"
        assert import_error(tmp_path, "v.rdf", content) == (
            "v.rdf declares the entity 'e', which is external, long or nested; expected short texts only: replace "
            "it with its text, or convert the file to Turtle."
        )

    def test_no_other_file_is_opened(self, tmp_path):
        content = '<!DOCTYPE rdf:RDF SYSTEM "http://127.0.0.1:9/x.dtd">' + XML % (
            '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="file:///etc/passwd"/>'
            '<owl:Ontology xmlns:owl="http://www.w3.org/2002/07/owl#"><owl:imports rdf:resource="file:///etc/passwd"/>'
            "</owl:Ontology>" + XML_CONCEPT % "one"
        )
        assert import_content(tmp_path, "v.rdf", content).uri(0) == "http://x/1"

    @pytest.mark.parametrize("content", ["<a>" * 100_000, XML % ("<rdf:li>" * 3000), "<!DOCTYPE a [" + " " * 2**21, ""])
    def test_damage_gives_a_one_line_error(self, tmp_path, content):
        assert import_error(tmp_path, "v.rdf", content).startswith("v.rdf ")


class TestTurtle:
    @pytest.mark.parametrize(
        "content",
        [
            f'<http://x/1> {NAME} "\\U00110000" .',
            f'<http://x/\\U00110000> {NAME} "a" .',
            f'<http://x/1> {NAME} "a"@1 .',
            f'<http://x/1> {NAME} "never closed',
            "(" * 3000,
            "[ <a:b> " * 3000,
            "@prefix x: <http://x/> . x:1 x:2",
            b"<http://x/1> \xff",
        ],
    )
    def test_damage_gives_a_one_line_error(self, tmp_path, content):
        assert import_error(tmp_path, "v.ttl", content).startswith("v.ttl cannot be read as turtle (")

    def test_invalid_literals_are_kept_as_text(self, tmp_path):
        types = {
            "integer": "9" * 5000,
            "decimal": "1E999999999",
            "date": "2024-99-99",
            "base64Binary": "?",
            "double": "x",
        }
        literals = [f'"{text}"^^<http://www.w3.org/2001/XMLSchema#{name}>' for name, text in types.items()]
        literals.append('"<a><b></a>"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral>')
        content = f"<http://x/1> a <{SKOS}Concept> ; <{SKOS}notation> {', '.join(literals)} ; {NAME} 'one' ."
        assert set(import_content(tmp_path, "v.ttl", content).notations(0)) == {*types.values(), "<a><b></a>"}


@pytest.mark.parametrize("escape", ["\\U00110000", "\\UFFFFFFFF", "\\uD800", "\\U0000DFFF"])
@pytest.mark.parametrize("place", ['<http://x/1> {name} "{escape}" .', '<http://x/{escape}> {name} "a" .'])
def test_invalid_escapes_in_ntriples_are_rejected(tmp_path, escape, place):
    content = f"<http://x/1> {TYPE} .\n" + place.format(name=NAME, escape=escape)
    assert import_error(tmp_path, "v.nt", content) == (
        f"v.nt, line 2: {escape} is not a character; expected a code point up to 10FFFF outside D800 to DFFF."
    )


def test_time_limit_of_an_import_gives_a_one_line_error(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.vocabulary.skos.TaskLimits.for_file_size", lambda *_: TaskLimits(seconds=0.05))
    assert import_error(tmp_path, "v.ttl", f"<http://x/1> {TYPE} .\n" * 20_000) == (
        "v.ttl cannot be read as turtle (it takes longer than 0.05 seconds); expected a complete file of that format: "
        "download it again, or set its format with --format."
    )
