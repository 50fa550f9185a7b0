"""Import of SKOS: N-Triples, and through rdflib Turtle, RDF/XML and JSON-LD.

N-Triples are read line by line. rdflib parses the other formats in a child process (xmtc/core/child_process.py), which
cannot open files or connections, and passes its statements to a store that keeps none of them: the graph of a million
concepts would take gigabytes. Contexts, entities and imports that a file names elsewhere are never fetched."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from io import BufferedReader
from queue import Queue
from typing import IO, Any
from xml.parsers import expat

from xmtc.core.child_process import CHILD_POOL, ChildTaskError, TaskLimits
from xmtc.core.child_worker import CHUNK_BYTES
from xmtc.data.file_streams import (
    STREAM_ERRORS,
    OnRead,
    damaged_file_error,
    display_name,
    open_binary,
    read_lines,
    strip_compression_extension,
)
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.vocabulary.builder import FALLBACK_NAME, ConceptCollector
from xmtc.vocabulary.vocabulary import ALTERNATIVE, COLLECTION, HIDDEN, NOTATION, PREFERRED, SCHEME

SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DCT = "http://purl.org/dc/terms/"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
NAME_PREDICATES = {
    f"{SKOS}prefLabel": PREFERRED,
    f"{SKOS}altLabel": ALTERNATIVE,
    f"{SKOS}hiddenLabel": HIDDEN,
    f"{SKOS}notation": NOTATION,
    f"{RDFS}label": FALLBACK_NAME,
}
GROUP_TYPES = {f"{SKOS}ConceptScheme": SCHEME, f"{SKOS}Collection": COLLECTION, f"{SKOS}OrderedCollection": COLLECTION}

NODE = r"<([^>]*)>|(_:[^\s<\"]+)"
LITERAL = r'"((?:[^"\\]|\\.)*)"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^<[^>]*>)?'
STATEMENT_PATTERN = re.compile(rf"\s*(?:{NODE})\s*<([^>]*)>\s*(?:{NODE}|{LITERAL})\s*\.\s*(?:#.*)?$")
ESCAPE_PATTERN = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
ESCAPED_CHARACTERS = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
SECONDS_PER_MIB = 30.0  # of a vocabulary; rdflib reads about 1 MiB of Turtle per second
COMPRESSION_RATIO = 10  # that is expected of a compressed vocabulary
BATCH_STATEMENTS = 5000  # that a child sends together
MAX_DTD_BYTES, MAX_ENTITY_CHARACTERS = 2**20, 1000

StatementHandler = Callable[
    [ConceptCollector, str, str, str], None
]  # of subject, object and its language, what a vocabulary keeps


def name_handler(kind: int) -> StatementHandler:
    return lambda found, subject, text, language: found.add_name(found.add_resource(subject), text, language, kind)


def handle_type(found: ConceptCollector, subject: str, kind: str, language: str) -> None:
    if kind == f"{SKOS}Concept":
        found.add_concept(subject)
    elif kind in GROUP_TYPES:
        found.add_group(subject, GROUP_TYPES[kind])


def handle_deprecated(found: ConceptCollector, subject: str, value: str, language: str) -> None:
    if value in ("true", "1"):
        found.deprecated.add(found.add_resource(subject))


def handle_in_scheme(found: ConceptCollector, concept: str, scheme: str, language: str = "") -> None:
    found.members.add(found.add_group(scheme, SCHEME), found.add_concept(concept))


def link_handler(pairs: str) -> StatementHandler:
    return lambda found, subject, to, _: getattr(found, pairs).add(found.add_resource(subject), found.add_resource(to))


def swap_subject_and_object(take: StatementHandler) -> StatementHandler:
    return lambda found, subject, object, language: take(found, object, subject, language)


PREDICATE_HANDLERS: dict[str, StatementHandler] = {
    **{predicate: name_handler(kind) for predicate, kind in NAME_PREDICATES.items()},
    f"{RDF}type": handle_type,
    f"{OWL}deprecated": handle_deprecated,
    f"{SKOS}broader": link_handler("broader"),
    f"{SKOS}narrower": swap_subject_and_object(link_handler("broader")),
    f"{SKOS}inScheme": handle_in_scheme,
    f"{SKOS}topConceptOf": handle_in_scheme,
    f"{SKOS}hasTopConcept": swap_subject_and_object(handle_in_scheme),
    f"{SKOS}member": lambda found, group, to, _: found.members.add(
        found.add_group(group, COLLECTION), found.add_resource(to)
    ),
    f"{DCT}isReplacedBy": link_handler("replacements"),
    f"{DCT}replaces": swap_subject_and_object(link_handler("replacements")),
}


def read_ntriples(path: str, collector: ConceptCollector, on_read: OnRead | None = None) -> None:
    """Add the statements of an N-Triples file to a collector."""
    for number, line in enumerate(read_lines(path, on_read), 1):
        text = line.decode("utf-8", "replace")
        found = STATEMENT_PATTERN.match(text)
        try:
            if found is not None:
                subject, blank, predicate, uri, blank_object, literal, language = found.groups()
                take = PREDICATE_HANDLERS.get(predicate)
                if take is not None:
                    object = literal if literal is not None else uri or blank_object or ""
                    take(collector, unescape(subject or blank), unescape(object), (language or "").lower())
            elif text.strip() and not text.lstrip().startswith("#"):
                raise ValueError(f"{text.strip()[:60]!r} is no N-Triples statement; expected <s> <p> <o> .")
        except ValueError as problem:
            raise XmtcError(f"{display_name(path)}, line {number}: {problem}") from None


def unescape(text: str) -> str:
    return text if "\\" not in text else ESCAPE_PATTERN.sub(decode_escape, text)


def decode_escape(found: re.Match[str]) -> str:
    """Return the character of an escape; raise ValueError for a number that no character has."""
    code = found[1] or found[2]
    if not code:
        return ESCAPED_CHARACTERS.get(found[3], found[3])
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ValueError(f"{found[0]} is no character; expected a number up to 10FFFF outside D800 to DFFF.")
    return chr(number)


def read_rdf(path: str, collector: ConceptCollector, format: str, on_read: OnRead | None = None) -> None:
    """Add the statements of a file in Turtle, RDF/XML or JSON-LD, by rdflib's names for them, to a collector."""
    if find_spec("rdflib") is None:
        raise as_missing_extra(f"Reading {display_name(path)}", ModuleNotFoundError(name="rdflib"))
    n_bytes = os.path.getsize(path) if os.path.isfile(path) else 0
    n_bytes *= COMPRESSION_RATIO if strip_compression_extension(path) != path else 1
    limits = TaskLimits.for_file_size(n_bytes, SECONDS_PER_MIB)
    try:
        request = [display_name(path), format]
        for batch in CHILD_POOL.run(
            "xmtc.vocabulary.skos:stream_statements", request, partial(read_chunks, path, on_read), limits
        ):
            if isinstance(batch, str):
                raise rdf_error(path, format, batch)
            try:
                for subject, predicate, object, language in batch:
                    PREDICATE_HANDLERS[predicate](collector, subject, object, language)
            except XmtcError as problem:
                raise XmtcError(f"{display_name(path)}: {problem}") from None
    except ChildTaskError as problem:
        raise rdf_error(path, format, str(problem)) from None


def rdf_error(path: str, format: str, reason: str) -> XmtcError:
    return XmtcError(
        f"{display_name(path)} cannot be read as {format} ({reason}); expected a whole file of that format: fetch it "
        "again, or name its format with --format."
    )


def read_chunks(path: str, on_read: OnRead | None) -> Iterator[bytes]:
    """Yield the content of a file, decompressed."""
    n_lines = 0
    with open_binary(path, on_read) as stream:
        try:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
                n_lines += chunk.count(b"\n")
        except STREAM_ERRORS as error:
            raise damaged_file_error(path, n_lines, error) from None


def stream_statements(request: list[str], content: IO[bytes]) -> Iterator[list[Any] | str]:
    """Yield batches of subject, predicate, object and language, or what is wrong: a task for a child process."""
    batches: Queue[Any] = Queue(4)
    threading.Thread(target=parse_rdf, args=(*request, content, batches), daemon=True).start()
    while (found := batches.get()) is not None:
        if isinstance(found, (XmtcError, MemoryError)):
            raise found
        yield found


def parse_rdf(name: str, format: str, content: IO[bytes], batches: Queue[Any]) -> None:
    """Put the statements of a file into a queue, then None."""
    try:
        import rdflib

        rdflib.NORMALIZE_LITERALS = False  # names are kept as they are written
        batch: list[Any] = []
        graph = rdflib.Graph(store=make_statement_store(batch, batches), bind_namespaces="none")
        source: dict[str, Any] = {"source": content}
        if format == "xml":
            source = {"source": check_xml(name, content)}
        elif format == "json-ld":
            source = {"data": check_json_ld(name, content)}
        graph.parse(**source, format=format, publicID="http://vocabulary.invalid/")  # for relative addresses
        batches.put(batch)
    except (XmtcError, MemoryError) as error:
        batches.put(error)
    except Exception as error:  # each of rdflib's parsers has errors of its own
        batches.put(" ".join(str(error).split())[:200] or type(error).__name__)
    batches.put(None)


def check_json_ld(name: str, content: IO[bytes]) -> bytes:
    """Return JSON-LD whose contexts are all in the file itself."""
    found = json.loads(content.read())
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            contexts = each.get("@context")
            named = [*(contexts if isinstance(contexts, list) else [contexts]), each.get("@import")]
            if address := next((one for one in named if isinstance(one, str)), None):
                raise XmtcError(
                    f"{name} takes its @context from {address[:100]!r}, and nothing but the file itself is opened; "
                    "expected the context in the file: put it there, or convert the file to expanded JSON-LD or Turtle."
                )
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return json.dumps(found).encode()


def check_xml(name: str, content: IO[bytes]) -> IO[bytes]:
    """Return RDF/XML whose entities are short and in the file itself: abbreviations of addresses, as tools write them.

    Entities within entities, which grow exponentially, and those of other files are refused.
    """
    assert isinstance(content, BufferedReader)
    head = content.peek(MAX_DTD_BYTES)
    parser = expat.ParserCreate()

    def on_entity(entity: str, is_parameter: int, value: str | None, *external: Any) -> None:
        if is_parameter or value is None or "&" in value or "%" in value or len(value) > MAX_ENTITY_CHARACTERS:
            raise XmtcError(
                f"{name} declares the entity {entity[:100]!r}, which is in another file, long, or made of entities; "
                "expected short texts only: replace it by its text, or convert the file to Turtle."
            )

    def on_root(*arguments: Any) -> None:
        raise EndOfDTD

    parser.EntityDeclHandler, parser.StartElementHandler = on_entity, on_root
    with suppress(EndOfDTD, expat.ExpatError):  # of what is wrong, rdflib tells
        parser.Parse(head, False)
        if len(head) >= MAX_DTD_BYTES:
            raise XmtcError(f"{name} has no element in its first {MAX_DTD_BYTES:,} bytes; expected RDF/XML.")
    return content


class EndOfDTD(Exception):
    """Ends the look at the declarations before the first element."""


def make_statement_store(batch: list[Any], batches: Queue[Any]) -> Any:
    """Return a store for rdflib that passes on the statements a vocabulary is made of, and keeps none."""
    from rdflib import Literal
    from rdflib.store import Store

    class Sink(Store):
        context_aware = formula_aware = graph_aware = True

        def add(self, triple: Any, context: Any = None, quoted: bool = False) -> None:
            subject, predicate, object = triple
            name = str(predicate)  # which is not equal to a plain string
            if name in PREDICATE_HANDLERS:
                language = (object.language or "") if isinstance(object, Literal) else ""
                batch.append((str(subject), name, str(object), language.lower()))
                if len(batch) == BATCH_STATEMENTS:
                    batches.put(batch.copy())
                    batch.clear()

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
