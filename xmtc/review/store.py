"""Store of a review desk: people, documents, decisions and updates in one SQLite file.

Every change is one transaction that is on the disk before the method returns, so a killed process loses nothing that
it has acknowledged. Several processes may use one file; it must be on a local disk, because WAL needs shared memory."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.errors import XmtcError, truncate_text

REVIEWER, ADMINISTRATOR = ROLES = ("reviewer", "administrator")
APPLICATION_ID, SCHEMA_VERSION = 0x786D7463, 1  # "xmtc"
BUSY_SECONDS = 20.0  # wait for a writer in another process
TOKEN_BYTES = 32  # of randomness, so a fast hash protects a stored token
MAX_NAME_CHARACTERS = 100
LEASE_SECONDS = 600.0  # time for which an open document is not offered to others
GENERATED_ID_PREFIX = "text-"  # followed by the hash of the text
ESTIMATES = ("uncertainty", "disagreement", "rare")
ORDERS = (*ESTIMATES, "document", "random")
RUNNING, READY, SERVED, FAILED, INTERRUPTED = "running", "ready", "served", "failed", "interrupted"  # of updates
HEARTBEAT_SECONDS, MAX_MISSED_HEARTBEATS = 2.0, 15  # a running update without heartbeats was killed
SCHEMA = """
CREATE TABLE people (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, role TEXT NOT NULL, token_hash BLOB UNIQUE,
  created REAL NOT NULL
);
CREATE TABLE documents (
  number INTEGER PRIMARY KEY, model TEXT NOT NULL, id TEXT NOT NULL, hash TEXT NOT NULL, text TEXT,
  is_queued INTEGER NOT NULL, time REAL NOT NULL, UNIQUE (model, id)
);
CREATE TABLE decisions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, person INTEGER NOT NULL REFERENCES people,
  document INTEGER NOT NULL REFERENCES documents, hash TEXT NOT NULL, time REAL NOT NULL, version TEXT NOT NULL,
  shown TEXT NOT NULL, accepted TEXT NOT NULL, added TEXT NOT NULL, rejected TEXT NOT NULL, proposed TEXT NOT NULL,
  seconds REAL NOT NULL, UNIQUE (person, key)
);
CREATE INDEX decisions_of_document ON decisions (document, person);
CREATE TABLE openings (
  document INTEGER NOT NULL REFERENCES documents, person INTEGER NOT NULL REFERENCES people, time REAL NOT NULL,
  PRIMARY KEY (document, person)
) WITHOUT ROWID;
CREATE TABLE estimates (
  document INTEGER PRIMARY KEY REFERENCES documents, version TEXT NOT NULL, uncertainty REAL NOT NULL,
  disagreement REAL, rare REAL NOT NULL
);
CREATE TABLE updates (
  number INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, person TEXT NOT NULL, started REAL NOT NULL,
  heartbeat REAL NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, report TEXT NOT NULL, parent INTEGER
);
CREATE TABLE learnt (
  update_number INTEGER NOT NULL REFERENCES updates, document INTEGER NOT NULL REFERENCES documents,
  decision INTEGER NOT NULL, PRIMARY KEY (update_number, document)
) WITHOUT ROWID;
"""
RANDOM_RANK = "number * 2654435761 % 4294967291 * 48271 % 2147483647"
INDEXES = (  # made when a file is opened, because files of earlier versions do not have them
    f"CREATE INDEX IF NOT EXISTS documents_random ON documents ({RANDOM_RANK})",
    *(f"CREATE INDEX IF NOT EXISTS estimates_{name} ON estimates ({name} DESC, document)" for name in ESTIMATES),
)
AVAILABLE = (  # a plus keeps SQLite from sorting by an index of the term
    "+documents.model = :model AND documents.is_queued AND documents.text IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "
    "decisions d WHERE d.document = documents.number AND d.person = :person) AND (SELECT COUNT(DISTINCT d.person) FROM "
    "decisions d WHERE d.document = documents.number) + (SELECT COUNT(*) FROM openings o WHERE o.document = "
    f"documents.number AND o.person != :person AND o.time > :now - {LEASE_SECONDS} AND NOT EXISTS (SELECT 1 FROM "
    "decisions d WHERE d.document = documents.number AND d.person = o.person)) < :max_reviewers"
)
UNOPENED = (
    f"{AVAILABLE} AND NOT EXISTS (SELECT 1 FROM openings own WHERE own.document = documents.number AND own.person = "
    ":person)"
)
ESTIMATE_QUERY = (
    "SELECT documents.number FROM estimates CROSS JOIN documents ON documents.number = estimates.document WHERE "
    f"estimates.{{order}} IS NOT NULL AND {UNOPENED} ORDER BY estimates.{{order}} DESC, estimates.document LIMIT 1"
)
RANDOM_QUERY = (
    f"SELECT number FROM documents WHERE {RANDOM_RANK} {{}} :first AND {UNOPENED} ORDER BY {RANDOM_RANK} LIMIT 1"
)
DOCUMENT_QUERY = f"SELECT number FROM documents WHERE {UNOPENED} ORDER BY number LIMIT 1"
SKIPPED_QUERY = (
    "SELECT documents.number FROM openings own CROSS JOIN documents ON documents.number = own.document WHERE "
    f"own.person = :person AND {AVAILABLE} ORDER BY own.time LIMIT 1"
)
LATEST = "d.number = (SELECT MAX(x.number) FROM decisions x WHERE x.document = d.document AND x.person = d.person)"
DECISION_COLUMNS = (
    "d.number, d.document, p.name AS person, p.role, d.time, d.version, d.hash, d.shown, d.accepted, d.added, "
    "d.rejected, d.proposed, d.seconds"
)


class Person(NamedTuple):
    """Person who may use the desk."""

    number: int
    name: str
    role: str

    @property
    def is_administrator(self) -> bool:
        return self.role == ADMINISTRATOR


class ReviewDocument(NamedTuple):
    """Document of the desk."""

    number: int
    model: str
    id: str
    hash: str
    text: str | None  # None after `forget_texts`

    @property
    def has_generated_id(self) -> bool:
        """True if the document came without an id."""
        return self.id == f"{GENERATED_ID_PREFIX}{self.hash}"


class Decision(NamedTuple):
    """Decision of a person about the labels of a document."""

    shown: Sequence[tuple[str, float | None]] = ()  # labels that the person saw, and their scores
    accepted: Sequence[str] = ()
    added: Sequence[str] = ()
    rejected: Sequence[str] = ()
    proposed: Sequence[str] = ()  # names of subjects outside the vocabulary
    version: str = ""  # of the model
    seconds: float = 0.0


class StoredDecision(NamedTuple):
    """Decision in the store."""

    number: int
    document: int
    person: str
    role: str
    time: float
    hash: str  # of the text that the person saw
    decision: Decision

    @property
    def final(self) -> list[str]:
        """Labels that the person gave the document."""
        return list(dict.fromkeys([*self.decision.accepted, *self.decision.added]))


def create_private_file(path: Path) -> None:
    """Create a file that other accounts cannot read, unless it exists.

    An existing file is not opened, because closing it would release the locks of SQLite in this process."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def replace_surrogates(text: str) -> str:
    """Return a text that SQLite can store: JSON may contain halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class ReviewStore:
    """Store of a review desk in an SQLite file; threads may share it."""

    def __init__(self, path: str | Path, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise XmtcError(f"{path} does not exist; `xmtc desk add {path} NAME` creates it.")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._create()

    def _create(self) -> None:
        try:
            create_private_file(self.path)
            with self.transaction() as connection:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                is_empty = not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
                if is_empty and not application:
                    for statement in filter(str.strip, SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                elif application != APPLICATION_ID or version != SCHEMA_VERSION:
                    raise XmtcError(f"{self.path} is not a desk of this version of xmtc; choose another file.")
                for statement in INDEXES:
                    connection.execute(statement)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise XmtcError(f"{self.path} cannot be opened as a desk ({error}); check the path.") from None
        except XmtcError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._connections:
            self._connections.pop().close()
        self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        """Connection of this thread."""
        if not hasattr(self._local, "connection"):
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            connection.row_factory = sqlite3.Row
            self._connections.append(connection)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection = connection
        return self._local.connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements of a writer in one transaction."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    # People

    def add_person(self, name: str, role: str = REVIEWER) -> str:
        """Add a person, or give a known one a new role and token. Return the token, which is not stored itself."""
        if role not in ROLES:
            raise XmtcError(f"Found the role {truncate_text(role)!r}; expected {' or '.join(ROLES)}.")
        if not name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise XmtcError(
                f"{truncate_text(name)!r} is no name; expected 1 to {MAX_NAME_CHARACTERS} visible characters."
            )
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO people (name, role, token_hash, created) VALUES (?, ?, ?, ?) ON CONFLICT (name) "
                "DO UPDATE SET role = excluded.role, token_hash = excluded.token_hash",
                (name, role, hash_token(token), time.time()),
            )
        return token

    def remove_person(self, name: str) -> None:
        """Make the token of a person invalid; the decisions stay."""
        with self.transaction() as connection:
            changed = connection.execute("UPDATE people SET token_hash = NULL WHERE name = ?", (name,)).rowcount
        if not changed:
            raise XmtcError(f"The desk has no person {truncate_text(name)!r}; `xmtc desk people` lists all.")

    def find_person(self, token: str) -> Person | None:
        """Return the person with a token."""
        query = "SELECT number, name, role FROM people WHERE token_hash = ?"
        row = self.connection.execute(query, (hash_token(token),)).fetchone()
        return None if row is None else Person(*row)

    def require_person(self, name: str) -> Person:
        """Return the person with a name, who is added as a reviewer without a token if unknown."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO people (name, role, created) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (name, REVIEWER, time.time()),
            )
            return Person(
                *connection.execute("SELECT number, name, role FROM people WHERE name = ?", (name,)).fetchone()
            )

    def list_people(self) -> list[dict[str, Any]]:
        """Return the people, with the number of their decisions."""
        rows = self.connection.execute(
            "SELECT name, role, token_hash IS NOT NULL AS is_active, (SELECT COUNT(*) FROM decisions WHERE person = "
            "people.number) AS decisions FROM people ORDER BY name"
        )
        return [{**row, "is_active": bool(row["is_active"])} for row in map(dict, rows)]

    # Documents

    def add_documents(self, model: str, documents: Iterable[tuple[str, str]], is_queued: bool = True) -> list[int]:
        """Add documents (id, text) and return their numbers; an empty id is that of the text.

        A known id gets the new text; its decisions keep the hash of the text that they were made for."""
        with self.transaction() as connection:
            return [self._add_document(connection, model, id, text, is_queued) for id, text in documents]

    def _add_document(self, connection: sqlite3.Connection, model: str, id: str, text: str, is_queued: bool) -> int:
        id, text = replace_surrogates(id), replace_surrogates(text)
        text_hash = hash_text(text)
        (number,) = connection.execute(
            "INSERT INTO documents (model, id, hash, text, is_queued, time) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
            "(model, id) DO UPDATE SET hash = excluded.hash, text = excluded.text, is_queued = MAX(is_queued, "
            "excluded.is_queued) RETURNING number",
            (model, id or f"{GENERATED_ID_PREFIX}{text_hash}", text_hash, text, is_queued, time.time()),
        ).fetchone()
        return number

    def get_document(self, model: str, number: int) -> ReviewDocument:
        """Return a document; raise XmtcError if the model has no document with this number."""
        query = "SELECT number, model, id, hash, text FROM documents WHERE model = ? AND number = ?"
        row = self.connection.execute(query, (model, number)).fetchone()
        if row is None:
            raise XmtcError(f"The desk has no document {number} for the model {model}; ask for the next one.")
        return ReviewDocument(*row)

    def list_documents(self, model: str) -> list[ReviewDocument]:
        rows = self.connection.execute(
            "SELECT number, model, id, hash, text FROM documents WHERE model = ? ORDER BY number", (model,)
        )
        return [ReviewDocument(*row) for row in rows]

    def list_models(self) -> list[str]:
        """Return the names of the models that documents were added for."""
        return [name for (name,) in self.connection.execute("SELECT DISTINCT model FROM documents ORDER BY model")]

    def count_documents(self, model: str, person: Person) -> dict[str, int]:
        """Return the numbers of documents, of reviewed ones, and of those that the person has reviewed."""
        row = self.connection.execute(
            "SELECT COUNT(*) AS documents, COALESCE(SUM(EXISTS (SELECT 1 FROM decisions d WHERE d.document = "
            "documents.number)), 0) AS reviewed, COALESCE(SUM(EXISTS (SELECT 1 FROM decisions d WHERE d.document = "
            "documents.number AND d.person = ?)), 0) AS own FROM documents WHERE model = ?",
            (person.number, model),
        ).fetchone()
        return dict(row)

    def forget_texts(self, model: str) -> int:
        """Delete the texts of reviewed documents; hashes and decisions stay. Return the number of deleted texts."""
        with self.transaction() as connection:
            deleted = connection.execute(
                "UPDATE documents SET text = NULL WHERE model = ? AND text IS NOT NULL AND EXISTS (SELECT 1 FROM "
                "decisions WHERE document = documents.number)",
                (model,),
            ).rowcount
        self.connection.execute("VACUUM")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted

    # Queue

    def find_next(self, model: str, person: Person, order: str, max_reviewers: int = 1) -> int | None:
        """Return the next document for a person, and reserve it; None if there is none.

        Left out are documents that the person has reviewed, that enough others have reviewed, or that somebody else
        has open. Skipped documents come last."""
        if order not in ORDERS:
            raise XmtcError(f"Found the order {truncate_text(order)!r}; expected one of {', '.join(ORDERS)}.")
        values = {
            "model": model,
            "person": person.number,
            "now": time.time(),
            "max_reviewers": max_reviewers,
            "first": person.number * 1_000_003 * 40503 % 2147483647,  # each person starts elsewhere in a random order
        }
        while (number := self._select_next(order, values)) is not None and not self._reserve(number, values):
            pass  # somebody else has opened it in the meantime
        return number

    def _select_next(self, order: str, values: dict[str, Any]) -> int | None:
        """Return the next document without a lock; each query follows an index up to the first available document."""
        queries = {"document": [], "random": [RANDOM_QUERY.format(">="), RANDOM_QUERY.format("<")]}
        for query in [*queries.get(order, [ESTIMATE_QUERY.format(order=order)]), DOCUMENT_QUERY, SKIPPED_QUERY]:
            row = self.connection.execute(query, values).fetchone()
            if row is not None:
                return row[0]
        return None

    def _reserve(self, number: int, values: dict[str, Any]) -> bool:
        """Mark a document as open; return False if it is not available any more."""
        values = values | {"document": number}
        with self.transaction() as connection:
            query = f"SELECT 1 FROM documents WHERE documents.number = :document AND {AVAILABLE}"
            is_available = connection.execute(query, values).fetchone() is not None
            if is_available:
                connection.execute(
                    "INSERT INTO openings (document, person, time) VALUES (:document, :person, :now) ON CONFLICT "
                    "(document, person) DO UPDATE SET time = excluded.time",
                    values,
                )
        return is_available

    def list_stale(self, model: str, version: str, limit: int) -> list[ReviewDocument]:
        """Return documents without a decision whose estimates are not those of this version of the model."""
        rows = self.connection.execute(
            "SELECT documents.number, model, id, hash, text FROM documents LEFT JOIN estimates ON estimates.document = "
            "documents.number WHERE model = ? AND is_queued AND text IS NOT NULL AND estimates.version IS NOT ? AND "
            "NOT EXISTS (SELECT 1 FROM decisions d WHERE d.document = documents.number) LIMIT ?",
            (model, version, limit),
        )
        return [ReviewDocument(*row) for row in rows]

    def save_estimates(self, version: str, estimates: Iterable[tuple[int, float, float | None, float]]) -> None:
        """Store uncertainty, disagreement and rarity of documents."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO estimates (document, version, uncertainty, disagreement, rare) "
                "VALUES (?, ?, ?, ?, ?)",
                [(number, version, *values) for number, *values in estimates],
            )

    # Decisions

    def record(self, model: str, number: int, person: Person, key: str, decision: Decision) -> bool:
        """Store a decision. Return False if a decision of this person with this key was stored before."""
        with self.transaction() as connection:
            return self._record(connection, self.get_document(model, number), person, key, decision)

    def learn(
        self, model: str, documents: Iterable[tuple[Person, str, str, str, Decision]], may_replace: bool = True
    ) -> int:
        """Store documents (person, id, text, key, decision), all or none. Return the number of new decisions.

        Without `may_replace`, raise XmtcError for another text of a document that is queued or that others decided."""
        n_new = 0
        with self.transaction() as connection:
            for person, id, text, key, decision in documents:
                if not may_replace:
                    self._require_own_text(connection, model, person, id, text)
                number = self._add_document(connection, model, id, text, is_queued=False)
                n_new += self._record(connection, self.get_document(model, number), person, key, decision)
        return n_new

    def _require_own_text(self, connection: sqlite3.Connection, model: str, person: Person, id: str, text: str) -> None:
        query = (
            "SELECT 1 FROM documents WHERE model = ? AND id = ? AND hash != ? AND (is_queued OR EXISTS (SELECT 1 FROM "
            "decisions d WHERE d.document = documents.number AND d.person != ?))"
        )
        values = (model, replace_surrogates(id), hash_text(replace_surrogates(text)), person.number)
        if connection.execute(query, values).fetchone() is not None:
            raise XmtcError(
                f"The desk has a document {truncate_text(id)!r} with another text, which only an administrator may "
                "replace; send another id, or none."
            )

    def _record(
        self, connection: sqlite3.Connection, document: ReviewDocument, person: Person, key: str, decision: Decision
    ) -> bool:
        lists = [
            json.dumps(part, allow_nan=False)
            for part in (decision.shown, decision.accepted, decision.added, decision.rejected, decision.proposed)
        ]
        content, key = (document.number, *lists), replace_surrogates(key)
        before = connection.execute(
            "SELECT document, shown, accepted, added, rejected, proposed FROM decisions WHERE person = ? AND key = ?",
            (person.number, key),
        ).fetchone()
        if before is not None:
            if tuple(before) != content:
                raise XmtcError(f"The key {truncate_text(key)!r} belongs to another decision; use a new key for each.")
            return False
        connection.execute(
            "INSERT INTO decisions (key, person, document, hash, time, version, shown, accepted, added, rejected, "
            "proposed, seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(key, person.number, document.number, document.hash, time.time(), decision.version),
                *(*lists, decision.seconds),
            ),
        )
        return True

    def list_decisions(self, model: str, document: int | None = None) -> list[StoredDecision]:
        """Return the latest decision of each person about each document, or about one document."""
        query = (
            f"SELECT {DECISION_COLUMNS} FROM decisions d JOIN people p ON p.number = d.person JOIN documents ON "
            f"documents.number = d.document WHERE documents.model = ? AND {LATEST}"
        )
        values: list[Any] = [model]
        if document is not None:
            query, values = f"{query} AND d.document = ?", [model, document]
        return [parse_decision(row) for row in self.connection.execute(f"{query} ORDER BY d.number", values)]

    def list_recent(self, model: str, person: Person, limit: int = 50) -> list[int]:
        """Return the documents that a person decided last, the oldest first."""
        rows = self.connection.execute(
            "SELECT d.document FROM decisions d JOIN documents ON documents.number = d.document WHERE model = ? AND "
            f"d.person = ? AND {LATEST} ORDER BY d.number DESC LIMIT ?",
            (model, person.number, limit),
        )
        return [number for (number,) in rows][::-1]

    # Updates

    def start_update(self, model: str, person: str) -> int:
        """Add a running update and return its number; raise XmtcError if one is running."""
        now = time.time()
        with self.transaction() as connection:
            connection.execute(
                "UPDATE updates SET state = ?, message = 'The process ended.' WHERE state = ? AND heartbeat < ?",
                (INTERRUPTED, RUNNING, now - HEARTBEAT_SECONDS * MAX_MISSED_HEARTBEATS),
            )
            query = "SELECT number FROM updates WHERE model = ? AND state = ?"
            if connection.execute(query, (model, RUNNING)).fetchone() is not None:
                raise XmtcError(f"An update of {model} is running; wait until it has ended.")
            parent = self.find_served_update(model)
            return connection.execute(
                "INSERT INTO updates (model, person, started, heartbeat, state, message, report, parent) "
                "VALUES (?, ?, ?, ?, ?, '', '{}', ?) RETURNING number",
                (model, person, now, now, RUNNING, parent),
            ).fetchone()[0]

    def change_update(self, number: int, state: str, message: str = "", report: dict[str, Any] | None = None) -> None:
        """Set the state of an update, and the report if there is one."""
        encoded = None if report is None else json.dumps(report, allow_nan=False)
        with self.transaction() as connection:
            connection.execute(
                "UPDATE updates SET state = ?, message = ?, heartbeat = ?, report = COALESCE(?, report) "
                "WHERE number = ?",
                (state, message, time.time(), encoded, number),
            )

    def save_learnt(self, number: int, decisions: Iterable[tuple[int, int]]) -> None:
        """Store which documents an update learns, and their latest decisions."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT INTO learnt (update_number, document, decision) VALUES (?, ?, ?)",
                [(number, *pair) for pair in decisions],
            )

    def list_learnt(self, number: int | None) -> dict[int, int]:
        """Return the documents that an update and those before it have learnt, and their latest decisions."""
        rows = self.connection.execute(
            "WITH RECURSIVE chain (number) AS (SELECT ? UNION SELECT updates.parent FROM updates JOIN chain ON "
            "updates.number = chain.number WHERE updates.parent IS NOT NULL) SELECT document, MAX(decision) FROM "
            "learnt WHERE update_number IN (SELECT number FROM chain) GROUP BY document",
            (number,),
        )
        return {row[0]: row[1] for row in rows}

    def find_served_update(self, model: str) -> int | None:
        """Return the update whose model is served, or None for the first model."""
        query = "SELECT MAX(number) FROM updates WHERE model = ? AND state = ?"
        return self.connection.execute(query, (model, SERVED)).fetchone()[0]

    def get_update(self, model: str, number: int) -> dict[str, Any]:
        """Return an update; raise XmtcError if there is none with this number."""
        found = [update for update in self.list_updates(model) if update["number"] == number]
        if not found:
            raise XmtcError(f"The desk has no update {number} of the model {model}.")
        return found[0]

    def list_updates(self, model: str) -> list[dict[str, Any]]:
        """Return the updates of a model, the latest first; a running one without heartbeats is interrupted."""
        oldest = time.time() - HEARTBEAT_SECONDS * MAX_MISSED_HEARTBEATS
        rows = self.connection.execute("SELECT * FROM updates WHERE model = ? ORDER BY number DESC", (model,))
        updates = [{**dict(row), "report": json.loads(row["report"])} for row in rows]
        for update in updates:
            if update["state"] == RUNNING and update["heartbeat"] < oldest:
                update["state"] = INTERRUPTED
        return updates

    def count_decisions(self) -> int:
        return self.connection.execute("SELECT COUNT(*) FROM decisions").fetchone()[0]


def parse_decision(row: sqlite3.Row) -> StoredDecision:
    shown, accepted, added, rejected, proposed = (
        json.loads(row[name]) for name in ("shown", "accepted", "added", "rejected", "proposed")
    )
    shown = [(label, score) for label, score in shown]
    decision = Decision(shown, accepted, added, rejected, proposed, row["version"], row["seconds"])
    return StoredDecision(
        row["number"], row["document"], row["person"], row["role"], row["time"], row["hash"], decision
    )
