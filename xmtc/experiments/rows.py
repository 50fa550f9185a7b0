"""What the file of a table says: its rows, each with its corpus, its method and parameters, and what was published."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from xmtc.analysis.measured_process import PACKAGE_FOLDER_NAMES, SOURCE_ROOT
from xmtc.errors import XmtcError, find_similar_names

ROW_KINDS = ("method", "combine", "compare")  # a row says one of these
TABLES_FOLDER = "experiments"  # of the repository, where its tables lie
# What is said of a table, and not of its rows.
TABLE_KEYS = ("title", "note", "pages", "row")


@dataclass(frozen=True, eq=False)
class ExperimentRow:
    """A row, with one of its seeds."""

    table: str  # the name of its file
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
        """The rows that it is made of."""
        return [*self.settings.get("combine", []), *self.settings.get("compare", [])]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure, as its file has it."""

    path: Path
    title: str
    rows: list[ExperimentRow]
    note: str = ""
    pages: list[str] = field(default_factory=list)  # of the documentation, that speak of it

    @property
    def name(self) -> str:
        return self.path.stem


def load_experiment(path: Path) -> Experiment:
    """What stands at the top of the file holds for every row that does not say otherwise; parameters are joined."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise XmtcError(f"{path} cannot be read as a table of experiments, which is TOML: {error}.") from None
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
    return Experiment(path, said.get("title", path.stem), jobs, said.get("note", ""), said.get("pages", []))


def expand_noise_rates(table: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row whose noise has several rates is a row for each kind and rate, which its name then says."""
    noise = row.get("noise", table.get("noise", {}))
    if not any(isinstance(rates, list) for rates in noise.values()):
        return [row]
    seed = {"seed": noise["seed"]} if "seed" in noise else {}
    listed = {kind: rates if isinstance(rates, list) else [rates] for kind, rates in noise.items() if kind != "seed"}
    kinds = [(kind, rate) for kind, rates in listed.items() for rate in rates]
    return [row | {"name": f"{row['name']}, {kind} {rate}", "noise": {kind: rate} | seed} for kind, rate in kinds]


def expand_corpora(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row on several corpora is as many rows, named after them, as are the ones that it is made of. `on` has what
    holds on one of them alone, and `published` then has figures by corpus."""
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
    """The jobs that a combination or a comparison is of: the ones with its seed, where it has one, else all."""
    found: list[ExperimentRow] = []
    for name in job.member_names:
        known = [other for other in jobs if name in (other.name, other.settings["name"]) and other is not job]
        if not known:
            raise XmtcError(f"{job.table}: {job.name!r} is made of {name!r}, which no row is called.")
        found += [other for other in known if other.seed == job.seed] or known
    return found


def flatten_parameters(params: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as the command line takes them: parabel.n_trees, true, a,b."""
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, dict):
            found |= flatten_parameters(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            found[prefix + name] = str(value).lower()
        else:
            found[prefix + name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


# Which files there are


def find_table(name: str) -> Path:
    """The file of a table, by its path, or by its name where the repository's tables can be found."""
    places = [Path(name), Path(f"{name}.toml"), *(folder / f"{name}.toml" for folder in list_table_folders())]
    found = next((place for place in places if place.is_file()), None)
    if found:
        return found
    known = [path.stem for path in list_tables()]
    if not known:
        raise XmtcError(
            f"{name} is not there; give the path of a table, a .toml file. The papers' tables lie in the folder "
            f"{TABLES_FOLDER} of xmtc's repository, which an installation does not bring along."
        )
    meant = "".join(f"; did you mean {each}?" for each in find_similar_names(name, known)) or "."
    raise XmtcError(f"There is no table {name}{meant} In {TABLES_FOLDER} lie {', '.join(known)}.")


def list_tables() -> list[Path]:
    return next((paths for folder in list_table_folders() if (paths := sorted(folder.glob("*.toml")))), [])


def list_table_folders() -> list[Path]:
    """Where the repository's tables may lie: below the current folder, or in the checkout that runs."""
    return (
        [Path(TABLES_FOLDER)]
        if SOURCE_ROOT.name in PACKAGE_FOLDER_NAMES
        else [Path(TABLES_FOLDER), SOURCE_ROOT / TABLES_FOLDER]
    )
