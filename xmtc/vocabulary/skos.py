"""Import of SKOS from N-Triples, Turtle, RDF/XML and JSON-LD.

N-Triples are read line by line. rdflib parses the other formats in a child process (xmtc/core/child_process.py), which
cannot open files or connections. Statements are streamed and not stored: the graph of a million concepts would take
gigabytes. External contexts, entities and imports are never fetched."""

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
SECONDS_PER_MIB = 30.0  # time limit; rdflib reads about 1 MiB of Turtle per second
COMPRESSION_RATIO = 10  # assumed for a compressed vocabulary
BATCH_STATEMENTS = 5000  # statements per message of the child process
MAX_DTD_BYTES, MAX_ENTITY_CHARACTERS = 2**20, 1000

StatementHandler = Callable[[ConceptCollector, str, str, str], None]  # handle(collector, subject, object, language)


def name_handler(kind: int) -> StatementHandler:
    return lambda collector, subject, text, language: collector.add_name(
        collector.add_resource(subject), text, language, kind
    )


def handle_type(collector: ConceptCollector, subject: str, kind: str, language: str) -> None:
    if kind == f"{SKOS}Concept":
        collector.add_concept(subject)
    elif kind in GROUP_TYPES:
        collector.add_group(subject, GROUP_TYPES[kind])


def handle_deprecated(collector: ConceptCollector, subject: str, value: str, language: str) -> None:
    if value in ("true", "1"):
        collector.deprecated.add(collector.add_resource(subject))


def handle_in_scheme(collector: ConceptCollector, concept: str, scheme: str, language: str = "") -> None:
    collector.members.add(collector.add_group(scheme, SCHEME), collector.add_concept(concept))


def link_handler(pairs: str) -> StatementHandler:
    return lambda collector, subject, to, _: getattr(collector, pairs).add(
        collector.add_resource(subject), collector.add_resource(to)
    )


def swap_subject_and_object(handle: StatementHandler) -> StatementHandler:
    return lambda collector, subject, object, language: handle(collector, object, subject, language)


PREDICATE_HANDLERS: dict[str, StatementHandler] = {
    **{predicate: name_handler(kind) for predicate, kind in NAME_PREDICATES.items()},
    f"{RDF}type": handle_type,
    f"{OWL}deprecated": handle_deprecated,
    f"{SKOS}broader": link_handler("broader"),
    f"{SKOS}narrower": swap_subject_and_object(link_handler("broader")),
    f"{SKOS}inScheme": handle_in_scheme,
    f"{SKOS}topConceptOf": handle_in_scheme,
    f"{SKOS}hasTopConcept": swap_subject_and_object(handle_in_scheme),
    f"{SKOS}member": lambda collector, group, to, _: collector.members.add(
        collector.add_group(group, COLLECTION), collector.add_resource(to)
    ),
    f"{DCT}isReplacedBy": link_handler("replacements"),
    f"{DCT}replaces": swap_subject_and_object(link_handler("replacements")),
    f"{SKOS}exactMatch": link_handler("matches"),
}


def read_ntriples(path: str, collector: ConceptCollector, on_read: OnRead | None = None) -> None:
    """Add the statements of an N-Triples file to a collector."""
    for number, line in enumerate(read_lines(path, on_read), 1):
        text = line.decode("utf-8", "replace")
        match = STATEMENT_PATTERN.match(text)
        try:
            if match is not None:
                subject, blank, predicate, uri, blank_object, literal, language = match.groups()
                handle = PREDICATE_HANDLERS.get(predicate)
                if handle is not None:
                    object = literal if literal is not None else uri or blank_object or ""
                    handle(collector, unescape(subject or blank), unescape(object), (language or "").lower())
            elif text.strip() and not text.lstrip().startswith("#"):
                raise ValueError(f"{text.strip()[:60]!r} is not an N-Triples statement; expected <s> <p> <o> .")
        except ValueError as error:
            raise XmtcError(f"{display_name(path)}, line {number}: {error}") from None


def unescape(text: str) -> str:
    return text if "\\" not in text else ESCAPE_PATTERN.sub(decode_escape, text)


def decode_escape(match: re.Match[str]) -> str:
    """Return the character of an escape sequence; raise a ValueError for an invalid code point."""
    code = match[1] or match[2]
    if not code:
        return ESCAPED_CHARACTERS.get(match[3], match[3])
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ValueError(f"{match[0]} is not a character; expected a code point up to 10FFFF outside D800 to DFFF.")
    return chr(number)


def read_rdf(path: str, collector: ConceptCollector, format: str, on_read: OnRead | None = None) -> None:
    """Add the statements of a file in a format of rdflib (turtle, xml or json-ld) to a collector."""
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
            except XmtcError as error:
                raise XmtcError(f"{display_name(path)}: {error}") from None
    except ChildTaskError as error:
        raise rdf_error(path, format, str(error)) from None


def rdf_error(path: str, format: str, reason: str) -> XmtcError:
    return XmtcError(
        f"{display_name(path)} cannot be read as {format} ({reason}); expected a complete file of that format: "
        "download it again, or set its format with --format."
    )


def read_chunks(path: str, on_read: OnRead | None) -> Iterator[bytes]:
    """Yield the decompressed content of a file in chunks."""
    n_lines = 0
    with open_binary(path, on_read) as stream:
        try:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
                n_lines += chunk.count(b"\n")
        except STREAM_ERRORS as error:
            raise damaged_file_error(path, n_lines, error) from None


def stream_statements(request: list[str], content: IO[bytes]) -> Iterator[list[Any] | str]:
    """Yield batches of (subject, predicate, object, language), or an error text. Runs in a child process."""
    batches: Queue[Any] = Queue(4)
    threading.Thread(target=parse_rdf, args=(*request, content, batches), daemon=True).start()
    while (message := batches.get()) is not None:
        if isinstance(message, (XmtcError, MemoryError)):
            raise message
        yield message


def parse_rdf(name: str, format: str, content: IO[bytes], batches: Queue[Any]) -> None:
    """Put the statements of a file, or an error, into a queue, and then None."""
    try:
        import rdflib

        rdflib.NORMALIZE_LITERALS = False  # names must not change
        batch: list[Any] = []
        graph = rdflib.Graph(store=make_statement_store(batch, batches), bind_namespaces="none")
        source: dict[str, Any] = {"source": content}
        if format == "xml":
            source = {"source": check_xml(name, content)}
        elif format == "json-ld":
            source = {"data": check_json_ld(name, content)}
        graph.parse(**source, format=format, publicID="http://vocabulary.invalid/")  # base of relative URIs
        batches.put(batch)
    except (XmtcError, MemoryError) as error:
        batches.put(error)
    except Exception as error:  # rdflib's parsers raise different errors
        batches.put(" ".join(str(error).split())[:200] or type(error).__name__)
    batches.put(None)


def check_json_ld(name: str, content: IO[bytes]) -> bytes:
    """Return JSON-LD, and raise an XmtcError if it has an external context."""
    document = json.loads(content.read())
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            contexts = value.get("@context")
            sources = [*(contexts if isinstance(contexts, list) else [contexts]), value.get("@import")]
            if address := next((source for source in sources if isinstance(source, str)), None):
                raise XmtcError(
                    f"{name} has the external @context {address[:100]!r}, which is not opened; expected the context in "
                    "the file: insert it, or convert the file to expanded JSON-LD or Turtle."
                )
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return json.dumps(document).encode()


def check_xml(name: str, content: IO[bytes]) -> IO[bytes]:
    """Return RDF/XML, and raise an XmtcError if it has nested, long or external entities.

    Short internal entities are common abbreviations of URIs. Nested entities may grow exponentially.
    """
    assert isinstance(content, BufferedReader)
    head = content.peek(MAX_DTD_BYTES)
    parser = expat.ParserCreate()

    def on_entity(entity: str, is_parameter: int, value: str | None, *external: Any) -> None:
        if is_parameter or value is None or "&" in value or "%" in value or len(value) > MAX_ENTITY_CHARACTERS:
            raise XmtcError(
                f"{name} declares the entity {entity[:100]!r}, which is external, long or nested; expected short "
                "texts only: replace it with its text, or convert the file to Turtle."
            )

    def on_root(*arguments: Any) -> None:
        raise EndOfDTD

    parser.EntityDeclHandler, parser.StartElementHandler = on_entity, on_root
    with suppress(EndOfDTD, expat.ExpatError):  # rdflib reports XML errors
        parser.Parse(head, False)
        if len(head) >= MAX_DTD_BYTES:
            raise XmtcError(f"{name} has no element in its first {MAX_DTD_BYTES:,} bytes; expected RDF/XML.")
    return content


class EndOfDTD(Exception):
    """Signal that the first element begins and the declarations end."""


def make_statement_store(batch: list[Any], batches: Queue[Any]) -> Any:
    """Return an rdflib store that forwards the statements of known predicates to a queue and stores none."""
    from rdflib import Literal
    from rdflib.store import Store

    class Sink(Store):
        context_aware = formula_aware = graph_aware = True

        def add(self, triple: Any, context: Any = None, quoted: bool = False) -> None:
            subject, predicate, object = triple
            name = str(predicate)  # a URIRef does not equal a plain string
            if name in PREDICATE_HANDLERS:
                language = (object.language or "") if isinstance(object, Literal) else ""
                batch.append((str(subject), name, str(object), language.lower()))
                if len(batch) == BATCH_STATEMENTS:
                    batches.put(batch.copy())
                    batch.clear()

        def addN(self, quads: Any) -> None:
            for subject, predicate, object, _ in quads:
                self.add((subject, predicate, object))

        def ignore(self, *arguments: Any, **options: Any) -> None:
            pass

        def iterate_nothing(self, *arguments: Any) -> Iterator[Any]:
            return iter(())

        bind = namespace = prefix = add_graph = ignore
        namespaces = iterate_nothing
        contexts: Any = iterate_nothing

        def __len__(self, context: Any = None) -> int:
            return 0

    return Sink()
