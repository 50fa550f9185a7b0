"""SKOS: what its statements say about concepts.

N-Triples are read line by line here. Turtle, RDF/XML and JSON-LD are rdflib's business, which hands its statements to a
store that keeps none of them: the graph of a million concepts would take gigabytes."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

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
GROUPS = {f"{SKOS}ConceptScheme": SCHEME, f"{SKOS}Collection": COLLECTION, f"{SKOS}OrderedCollection": COLLECTION}

NODE = r"<([^>]*)>|(_:[^\s<\"]+)"
LITERAL = r'"((?:[^"\\]|\\.)*)"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^<[^>]*>)?'
LINE = re.compile(rf"\s*(?:{NODE})\s*<([^>]*)>\s*(?:{NODE}|{LITERAL})\s*\.\s*(?:#.*)?$")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


Take = Callable[[Collector, str, str, str], None]  # of subject, object and its language, what a vocabulary keeps


def name_of(kind: int) -> Take:
    return lambda found, subject, text, language: found.name(found.thing(subject), text, language, kind)


def take_type(found: Collector, subject: str, kind: str, language: str) -> None:
    if kind == f"{SKOS}Concept":
        found.concept(subject)
    elif kind in GROUPS:
        found.group(subject, GROUPS[kind])


def take_deprecated(found: Collector, subject: str, value: str, language: str) -> None:
    if value in ("true", "1"):
        found.deprecated.add(found.thing(subject))


def in_scheme(found: Collector, concept: str, scheme: str, language: str = "") -> None:
    found.members.add(found.group(scheme, SCHEME), found.concept(concept))


def link(pairs: str) -> Take:
    return lambda found, subject, to, _: getattr(found, pairs).add(found.thing(subject), found.thing(to))


def other_way_round(take: Take) -> Take:
    return lambda found, subject, object, language: take(found, object, subject, language)


TAKES: dict[str, Take] = {
    **{predicate: name_of(kind) for predicate, kind in NAMES.items()},
    f"{RDF}type": take_type,
    f"{OWL}deprecated": take_deprecated,
    f"{SKOS}broader": link("broader"),
    f"{SKOS}narrower": other_way_round(link("broader")),
    f"{SKOS}inScheme": in_scheme,
    f"{SKOS}topConceptOf": in_scheme,
    f"{SKOS}hasTopConcept": other_way_round(in_scheme),
    f"{SKOS}member": lambda found, group, to, _: found.members.add(found.group(group, COLLECTION), found.thing(to)),
    f"{DCT}isReplacedBy": link("replacements"),
    f"{DCT}replaces": other_way_round(link("replacements")),
}


def read_ntriples(path: str, collector: Collector, on_read: OnRead | None = None) -> None:
    for number, line in enumerate(read_lines(path, on_read), 1):
        text = line.decode("utf-8", "replace")
        found = LINE.match(text)
        if found is not None:
            subject, blank, predicate, uri, blank_object, literal, language = found.groups()
            take = TAKES.get(predicate)
            if take is not None:
                object = literal if literal is not None else uri or blank_object or ""
                take(collector, unescaped(subject or blank), unescaped(object), (language or "").lower())
        elif text.strip() and not text.lstrip().startswith("#"):
            where = f"{display_name(path)}, line {number}"
            raise XmtcError(f"{where}: {text.strip()[:60]!r} is no N-Triples statement; expected <s> <p> <o> .")


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
            take = TAKES.get(str(predicate))  # which is not equal to a plain string
            if take is not None:
                language = (object.language or "") if isinstance(object, Literal) else ""
                take(collector, str(subject), str(object), language.lower())

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
