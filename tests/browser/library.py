"""A small library to tag: topics with words of their own, names in two languages, and one name that is an attack; and
a server for it."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import XMTC, xmtc

ATTACK = "<img src=x onerror=\"document.title='taken over'\">"
TOPICS = {
    "garden": ("gardening", "puutarhanhoito", "roses soil seeds hedge compost pruning tulips greenhouse"),
    "space": ("space travel", "avaruusmatkailu", "rocket orbit astronaut launch satellite moon gravity capsule"),
    "bread": ("baking of bread", "leivonta", "flour yeast oven dough rye crust kneading loaf"),
    "ships": ("shipping", "merenkulku", "harbour cargo sailors deck anchor captain icebreaker freight"),
    "music": ("chamber music", "kamarimusiikki", "violin quartet cello score rehearsal concert melody bow"),
    "law": ("contract law", "sopimusoikeus", "court clause liability judge treaty statute appeal tort"),
    "attack": (ATTACK, "hyökkäys", "script malware phishing exploit payload injection firewall password"),
}
COMMON = "the book tells about and of its with many a for people who in years"
GARDEN_TEXT = "Roses and tulips need good soil. The greenhouse and the compost come next, and pruning in spring."


def labelled(n_docs: int, seed: int) -> list[dict]:
    """Documents of one or two topics, each with words of those and common ones."""
    chosen = random.Random(seed)
    documents = []
    for number in range(n_docs):
        topics = chosen.sample(list(TOPICS), chosen.choice((1, 1, 2)))
        words = [word for topic in topics for word in chosen.choices(TOPICS[topic][2].split(), k=10)]
        words += chosen.choices(COMMON.split(), k=15)
        chosen.shuffle(words)
        documents.append({"id": f"book {number}", "text": " ".join(words), "labels": [uri(topic) for topic in topics]})
    return documents


def uri(topic: str) -> str:
    return f"http://example.org/{topic}"


def write_lines(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_library(folder: Path) -> Path:
    """A model with names and a report, and the corpus that it comes from."""
    write_lines(folder / "train.jsonl", labelled(400, seed=0))
    write_lines(folder / "test.jsonl", labelled(60, seed=1))
    rows = [f"{uri(topic)}\t{english}\t{finnish}" for topic, (english, finnish, _) in TOPICS.items()]
    (folder / "concepts.tsv").write_text("\n".join(["uri\tlabel_en\tlabel_fi", *rows]) + "\n")
    run(folder, "train", "train.jsonl", "-o", "library", "--vocab", "concepts.tsv", "--language", "en")
    run(folder, "report", "library", "test.jsonl", "-o", "report.html")
    return folder


def run(folder: Path, *words: str) -> None:
    done = xmtc(*words, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server, which says itself where it listens."""
    command = [*XMTC, "serve", "library", "--port", "0", "--quiet", *options]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = []
            for line in process.stderr or ():
                said.append(line)
                if line.startswith("{") and (event := json.loads(line))["event"] == "serving":
                    break
            else:
                raise AssertionError("".join(said))
            yield f"http://127.0.0.1:{event['port']}/"
        finally:
            process.terminate()
            process.communicate(timeout=30)
