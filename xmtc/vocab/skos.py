"""SKOS: what its statements say about concepts.

N-Triples are read line by line here. Turtle, RDF/XML and JSON-LD are rdflib's business, which hands its statements to a
store that keeps none of them: the graph of a million concepts would take gigabytes."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from xmtc.data.files import OnRead, display_name, open_binary, read_lines
from xmtc.errors import XmtcError, missing_extra
from xmtc.vocab.collecting import FALLBACK, Collector
from xmtc.vocab.vocabulary import ALTERNATIVE, COLLECTION, HIDDEN, NOTATION, PREFERRED, SCHEME

SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DCT = "http://purl.org/dc/terms/"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
NAMES = {
    f"{SKOS}prefLabel": PREFERRED,
    f"{SKOS}altLabel": ALTERNATIVE,
    f"{SKOS}hiddenLabel": HIDDEN,
    f"{SKOS}notation": NOTATION,
    f"{RDFS}label": FALLBACK,
}
TYPE, DEPRECATED = f"{RDF}type", f"{OWL}deprecated"
GROUPS = {f"{SKOS}ConceptScheme": SCHEME, f"{SKOS}Collection": COLLECTION, f"{SKOS}OrderedCollection": COLLECTION}
BROADER, NARROWER = f"{SKOS}broader", f"{SKOS}narrower"
REPLACED, REPLACES = f"{DCT}isReplacedBy", f"{DCT}replaces"
IN_SCHEME = {f"{SKOS}inScheme", f"{SKOS}topConceptOf"}
HAS_TOP, MEMBER = f"{SKOS}hasTopConcept", f"{SKOS}member"
WANTED = {*NAMES, TYPE, DEPRECATED, BROADER, NARROWER, REPLACED, REPLACES, *IN_SCHEME, HAS_TOP, MEMBER}

NODE = r"<([^>]*)>|(_:[^\s<\"]+)"
LITERAL = r'"((?:[^"\\]|\\.)*)"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^<[^>]*>)?'
LINE = re.compile(rf"\s*(?:{NODE})\s*<([^>]*)>\s*(?:{NODE}|{LITERAL})\s*\.\s*(?:#.*)?$")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


class Statement(NamedTuple):
    subject: str
    predicate: str
    object: str
    language: str = ""


def collect(collector: Collector, statement: Statement) -> None:
    """Take from a statement what a vocabulary keeps."""
    subject, predicate, object, language = statement
    if predicate in NAMES:
        collector.name(collector.thing(subject), object, language, NAMES[predicate])
    elif predicate == TYPE:
        if object == f"{SKOS}Concept":
            collector.concept(subject)
        elif object in GROUPS:
            collector.group(subject, GROUPS[object])
    elif predicate == BROADER:
        collector.broader.add(collector.thing(subject), collector.thing(object))
    elif predicate == NARROWER:
        collector.broader.add(collector.thing(object), collector.thing(subject))
    elif predicate in IN_SCHEME:
        collector.members.add(collector.group(object, SCHEME), collector.concept(subject))
    elif predicate == HAS_TOP:
        collector.members.add(collector.group(subject, SCHEME), collector.concept(object))
    elif predicate == MEMBER:
        collector.members.add(collector.group(subject, COLLECTION), collector.thing(object))
    elif predicate == REPLACED:
        collector.replacements.add(collector.thing(subject), collector.thing(object))
    elif predicate == REPLACES:
        collector.replacements.add(collector.thing(object), collector.thing(subject))
    elif predicate == DEPRECATED and object in ("true", "1"):
        collector.deprecated.add(collector.thing(subject))


def read_ntriples(path: str, collector: Collector, on_read: OnRead | None = None) -> None:
    for number, line in enumerate(read_lines(path, on_read), 1):
        for statement in statements(line.decode("utf-8", "replace"), f"{display_name(path)}, line {number}"):
            collect(collector, statement)


def statements(line: str, where: str) -> Iterator[Statement]:
    """What a line of N-Triples says, if it is of interest."""
    found = LINE.match(line)
    if found is None:
        if line.strip() and not line.lstrip().startswith("#"):
            raise XmtcError(f"{where}: {line.strip()[:60]!r} is no N-Triples statement; expected <s> <p> <o> .")
        return
    subject, blank, predicate, uri, blank_object, literal, language = found.groups()
    if predicate in WANTED:
        object = literal if literal is not None else uri or blank_object or ""
        yield Statement(unescaped(subject or blank), predicate, unescaped(object), (language or "").lower())


def unescaped(text: str) -> str:
    return text if "\\" not in text else ESCAPE.sub(letter, text)


def letter(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else ESCAPED.get(found[3], found[3])


def read_rdf(path: str, collector: Collector, format: str, on_read: OnRead | None = None) -> None:
    """Turtle, RDF/XML or JSON-LD, in rdflib's names for them."""
    try:
        from rdflib import Graph
    except ImportError as error:
        raise missing_extra(f"Reading {display_name(path)}", error) from None

    logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)  # which complains of dates that nobody asked about
    graph = Graph(store=sink(collector), bind_namespaces="none")
    with open_binary(path, on_read) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # rdflib's own of rdflib
        try:
            graph.parse(stream, format=format, publicID="http://vocabulary.invalid/")  # for relative addresses
        except (XmtcError, MemoryError):
            raise
        except Exception as error:  # each of rdflib's parsers has errors of its own
            said = " ".join(str(error).split())[:200] or type(error).__name__
            raise XmtcError(
                f"{display_name(path)} cannot be read as {format} ({said}); expected a whole file of that format: "
                "fetch it again, or name its format with --format."
            ) from None


def sink(collector: Collector) -> Any:
    """A store for rdflib that passes statements on and keeps none."""
    from rdflib import Literal
    from rdflib.store import Store

    class Sink(Store):
        context_aware = formula_aware = graph_aware = True

        def add(self, triple: Any, context: Any = None, quoted: bool = False) -> None:
            subject, predicate, object = triple
            if str.__str__(predicate) in WANTED:
                language = (object.language or "") if isinstance(object, Literal) else ""
                collect(collector, Statement(str(subject), str(predicate), str(object), language.lower()))

        def addN(self, quads: Any) -> None:
            for subject, predicate, object, _ in quads:
                self.add((subject, predicate, object))

        def bind(self, prefix: str, namespace: Any, override: bool = True) -> None:
            pass

        def namespace(self, prefix: str) -> None:
            return None

        def prefix(self, namespace: Any) -> None:
            return None

        def namespaces(self) -> Iterator[Any]:
            return iter(())

        def add_graph(self, graph: Any) -> None:
            pass

        def contexts(self, triple: Any = None) -> Any:
            return iter(())

        def __len__(self, context: Any = None) -> int:
            return 0

    return Sink()
