"""Tables of experiments: rows with corpus, method, parameters and published figures, read from TOML files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from xmtc.errors import XmtcError, find_similar_names

ROW_KINDS = ("method", "combine", "compare")  # every row has one of these keys
TABLES_FOLDER = Path(__file__).parent
TABLE_KEYS = ("title", "note", "pages", "ranks", "row")


@dataclass(frozen=True, eq=False)
class ExperimentRow:
    """Row of a table, with one of its seeds."""

    table: str  # stem of the table's file
    settings: dict[str, Any]
    seed: int | None = None

    @property
    def name(self) -> str:
        return self.settings["name"] if self.seed is None else f"{self.settings['name']}, seed {self.seed}"

    @property
    def slug(self) -> str:
        return re.sub(r"[^\w.=-]+", "-", self.name).strip("-").lower()

    @property
    def member_names(self) -> list[str]:
        """Names of the rows that this row combines or compares."""
        return [*self.settings.get("combine", []), *self.settings.get("compare", [])]


@dataclass(frozen=True)
class Experiment:
    """Table or figure of a paper, as its TOML file describes it."""

    path: Path
    title: str
    rows: list[ExperimentRow]
    note: str = ""
    pages: list[str] = field(default_factory=list)  # documentation pages about the table
    ranks: list[dict[str, Any]] = field(default_factory=list)  # published average ranks and the figures they rank

    @property
    def name(self) -> str:
        return self.path.stem


def load_experiment(path: Path) -> Experiment:
    """Read a table. Keys at the top of the file are defaults of every row; parameters are merged."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise XmtcError(f"{path} is not a readable TOML file: {error}.") from None
    said = {key: table.pop(key) for key in TABLE_KEYS if key in table}
    jobs = []
    for row in chain.from_iterable(expand_noise_rates(table, each) for each in said.get("row", [])):
        given = {key: value for key, value in table.items() if key not in ROW_KINDS or not row.keys() & set(ROW_KINDS)}
        whole = given | row | {"params": table.get("params", {}) | row.get("params", {})}
        if sum(key in whole for key in ROW_KINDS) != 1 or not {"name", "data", "measures"} <= whole.keys():
            wanted = f"name, data, measures and one of {', '.join(ROW_KINDS)}"
            raise XmtcError(f"{path}: row {row.get('name', '?')!r} must have {wanted}.")
        jobs += [
            ExperimentRow(path.stem, each, seed)
            for each in expand_corpora(whole)
            for seed in whole.get("seeds", [None])
        ]
    if len({job.slug for job in jobs}) < len(jobs):
        raise XmtcError(f"{path}: two rows have the same name.")
    title, note = said.get("title", path.stem), said.get("note", "")
    return Experiment(path, title, jobs, note, said.get("pages", []), said.get("ranks", []))


def expand_noise_rates(table: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per noise kind and rate; its name then ends with both."""
    noise = row.get("noise", table.get("noise", {}))
    if not any(isinstance(rates, list) for rates in noise.values()):
        return [row]
    seed = {"seed": noise["seed"]} if "seed" in noise else {}
    listed = {kind: rates if isinstance(rates, list) else [rates] for kind, rates in noise.items() if kind != "seed"}
    kinds = [(kind, rate) for kind, rates in listed.items() for rate in rates]
    return [row | {"name": f"{row['name']}, {kind} {rate}", "noise": {kind: rate} | seed} for kind, rate in kinds]


def expand_corpora(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per corpus. `on` holds the settings of single corpora."""
    if isinstance(row["data"], str):
        return [row]
    made = []
    for data in row["data"]:
        others = {kind: [f"{name}, {data}" for name in row[kind]] for kind in ("combine", "compare") if kind in row}
        own = row.get("on", {}).get(data, {})
        joined = {"params": row["params"] | own.get("params", {})}
        made.append(row | others | own | joined | {"data": data, "name": f"{row['name']}, {data}"})
    return made


def find_members(job: ExperimentRow, jobs: Sequence[ExperimentRow]) -> list[ExperimentRow]:
    """Return the member rows of a combination or comparison: those of its seed, or else all."""
    found: list[ExperimentRow] = []
    for name in job.member_names:
        known = [other for other in jobs if name in (other.name, other.settings["name"]) and other is not job]
        if not known:
            raise XmtcError(f"{job.table}: {job.name!r} refers to {name!r}, but no row has this name.")
        found += [other for other in known if other.seed == job.seed] or known
    return found


def flatten_parameters(params: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return parameters as the command line takes them: parabel.n_trees, true, a,b."""
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, dict):
            found |= flatten_parameters(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            found[prefix + name] = str(value).lower()
        else:
            found[prefix + name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def find_table(name: str) -> Path:
    """Return the file of a table, given its path or its name."""
    paths = (Path(name), Path(f"{name}.toml"), TABLES_FOLDER / f"{name}.toml")
    if found := next((path for path in paths if path.is_file()), None):
        return found
    known = [path.stem for path in list_tables()]
    hint = "".join(f"; did you mean {each}?" for each in find_similar_names(name, known)) or "."
    raise XmtcError(f"There is no table {name}{hint} The tables are {', '.join(known)}.")


def list_tables() -> list[Path]:
    return sorted(TABLES_FOLDER.glob("*.toml"))
