"""Estimate the time of a large training on a cluster from measured rates of Parabel, whose cost grows with documents
times levels. Nothing is trained.

    python benchmarks/cluster_plan.py --docs 1e8 --labels 1e7 --words 20 --machines 8 --cpus 32

The rates are those of docs/results/scale.md.
"""

from __future__ import annotations

import argparse
from math import ceil, log2

MAX_LEAF, LABELS_A_DOC, MEASURED_WORDS = 100, 3.8, 17.4  # of Parabel and the corpus of the measured rates
GB, HOUR = 1e9, 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", type=float, default=1e8)
    parser.add_argument("--labels", type=float, default=1e7)
    parser.add_argument("--words", type=float, default=20, help="distinct words of a document")
    parser.add_argument("--trees", type=int, default=3)
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=32, help="of each machine")
    parser.add_argument("--network", type=float, default=1.25, help="GB/s between machines; 1.25 is 10 Gbit/s")
    parser.add_argument("--train", type=float, default=16.3, help="µs of CPU for a document and level, 17 words")
    parser.add_argument("--driver", type=float, default=2.2, help="of these, µs where the command was typed")
    parser.add_argument("--sent", type=float, default=66, help="bytes sent for a document and level, beside arrays")
    asked = parser.parse_args()
    for name, value, why in estimate_figures(asked):
        print(f"| {name} | {value} | {why} |")


def estimate_figures(asked: argparse.Namespace) -> list[tuple[str, str, str]]:
    levels = ceil(log2(asked.labels / MAX_LEAF)) + 1
    steps, longer = asked.docs * levels * asked.trees, asked.words / MEASURED_WORDS
    n_values = asked.docs * asked.words
    value = 8 if n_values < 2**31 else 12  # bytes: 64-bit row ends require 64-bit column numbers
    matrix = n_values * value / GB
    cpu = steps * (asked.train - asked.driver) * longer * 1e-6
    driver, root = steps * asked.driver * 1e-6, asked.docs * asked.train * longer * 1e-6
    shared = cpu / (asked.machines * asked.cpus)
    sent = steps * asked.sent / GB
    copies = 2 * matrix * asked.machines
    held = asked.trees * levels * asked.docs * LABELS_A_DOC * 8 / GB
    total = driver + max(shared, root) + (sent + copies) / asked.network
    return [
        ("levels of a tree", f"{levels}", "labels halved until 100 are left, and these"),
        ("matrix of documents", f"{matrix:,.0f} GB", f"{value} bytes for a word of a document"),
        ("object store of each machine", f"{2 * matrix:,.0f} GB", "the matrix, and once more in random order"),
        ("room for a root", f"{matrix:,.0f} GB", "a copy of all documents"),
        ("memory where you type", f"{2 * matrix + held:,.0f} GB", "matrices, and who belongs to which node"),
        ("sent with nodes", f"{sent:,.0f} GB", f"{asked.sent:g} bytes for a document and level"),
        ("sent as matrices", f"{copies:,.0f} GB", "two to each machine"),
        ("all of it over the network", f"{(sent + copies) / asked.network / HOUR:.1f} h", f"{asked.network:g} GB/s"),
        ("CPU time on the machines", f"{cpu / HOUR:,.0f} h", "by all CPUs together"),
        ("shared by all CPUs", f"{shared / HOUR:.2f} h", f"{asked.machines * asked.cpus} of them"),
        ("the longest piece, a root", f"{root / HOUR:.2f} h", "one CPU"),
        ("where you type, one thread", f"{driver / HOUR:.1f} h", f"{asked.driver:g} µs for a document and level"),
        ("in all", f"{total / HOUR:.1f} h", "if nothing of it happens beside the other"),
    ]


if __name__ == "__main__":
    main()
