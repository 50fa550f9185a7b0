"""Runs the cases of a campaign: each is made from a seed and its number alone, so that any of them can be made again.

A case may end well, or with an XmtcError; whatever else comes out of it is a finding. Cases run in a process of their
own, with a limit of memory and of time: if it dies, that is a finding too, and another one goes on behind it."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xmtc.errors import XmtcError

Case = Callable[[int, int], None]  # from the seed and the number of the case

SECONDS = 60  # that a case may take: on a busy machine the slowest takes one or two
ROOM = 4 << 30  # bytes that a process may take beyond what it has when cases begin
DEFAULT_MINUTES = 5.0


END = {(True, False): "refused", (False, True): "finding", (False, False): "answered"}


@dataclass
class Outcome:
    n_cases: int = 0
    n_refused: int = 0
    ends: list[str] = field(default_factory=list)  # of each case: answered, refused or finding
    findings: list[tuple[int, str]] = field(default_factory=list)  # the case's number, and what came out of it


def outcome_of(case: Case, seed: int, number: int) -> str | None:
    """What is wrong with a case: nothing (""), that it was refused (None), or else."""
    try:
        case(seed, number)
    except XmtcError as error:
        return f"a sentence of several lines: {error}" if "\n" in str(error) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of Rust is no Exception
        return traceback.format_exc()
    return ""


def in_this_process(case: Case, seed: int, numbers: Iterator[int] | range) -> Outcome:
    """For tests, and for a look at one case with a debugger."""
    outcome = Outcome()
    for number in numbers:
        found = outcome_of(case, seed, number)
        outcome.n_cases += 1
        outcome.n_refused += found is None
        outcome.ends.append(END[found is None, bool(found)])
        if found:
            outcome.findings.append((number, found))
    return outcome


def work(case: Case, seed: int, first: int, last: int, stop_at: float) -> None:
    """What the process of the cases does: it says the number before each case, and afterwards how it ended."""
    limit_memory()
    for number in range(first, last):
        if time.time() > stop_at:
            break
        print(json.dumps(number), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        found = outcome_of(case, seed, number)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([found]), flush=True)


def limit_memory() -> None:
    """Beyond what is mapped already: PyTorch maps more than it uses."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError):
        pass  # without a limit where a system has no /proc


def watch(script: str, seed: int, n_cases: int, minutes: float, env: dict[str, str]) -> Outcome:
    """Start processes one after the other until the cases or the minutes are over."""
    outcome, stop_at = Outcome(), time.time() + 60 * minutes
    while outcome.n_cases < n_cases and time.time() < stop_at:
        numbers = [str(number) for number in (seed, outcome.n_cases, n_cases)]
        command = [sys.executable, script, "--work", *numbers, str(stop_at)]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | env, errors="replace"
            )
            before, is_open = outcome.n_cases, collect(process, outcome)
            if process.wait() == 0:
                break
            errors.seek(0)
            said = errors.read()[-3000:]
        if not is_open and outcome.n_cases == before:
            raise SystemExit(f"the process of the cases does not start:\n{said}")
        if is_open:
            outcome.findings.append((outcome.n_cases, f"the process ended with {process.returncode}:\n{said}"))
            outcome.ends.append("finding")
            outcome.n_cases += 1
    return outcome


def collect(process: subprocess.Popen, outcome: Outcome) -> bool:
    """Count what a process says; whether it ended in the middle of a case."""
    is_open = False
    for line in process.stdout or ():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # what a library prints
        is_open = isinstance(said, int)
        if isinstance(said, list):
            outcome.n_refused += said[0] is None
            outcome.ends.append(END[said[0] is None, bool(said[0])])
            if said[0]:
                outcome.findings.append((outcome.n_cases, said[0]))
            outcome.n_cases += 1
    return is_open


def report(outcome: Outcome, script: str, seed: int, kind: Callable[[int, int], str] | None = None) -> None:
    seen: dict[str, int] = {}
    for number, found in outcome.findings:
        last = found.strip().splitlines()[-1]
        seen[last] = seen.get(last, 0) + 1
        if seen[last] <= 3:  # of one kind
            print(f"case {number} (python {script} --seed {seed} --only {number}):\n{found}")
    for last, n in seen.items():
        print(f"{n:6,} × {last[:200]}")
    if kind is not None:
        counted = Counter((kind(seed, number), end) for number, end in enumerate(outcome.ends))
        for name in sorted({name for name, _ in counted}):
            ends = [f"{counted[name, end]:,} {end}" for end in ("answered", "refused", "finding")]
            print(f"{name}: {', '.join(ends)}")
    answered = outcome.n_cases - outcome.n_refused - len(outcome.findings)
    print(
        f"{Path(script).stem}, seed {seed}: {outcome.n_cases:,} cases, {answered:,} answered, "
        f"{outcome.n_refused:,} refused in a sentence, {len(outcome.findings):,} findings."
    )


def main(
    script: str,
    case: Case,
    doc: str | None,
    env: dict[str, str] | None = None,
    kind: Callable[[int, int], str] | None = None,
) -> None:
    """Run the command line of a campaign; it exits with 1 where there are findings. `kind` names the group that a case
    is counted in."""
    if sys.argv[1:2] == ["--work"]:
        seed, first, last = map(int, sys.argv[2:5])
        work(case, seed, first, last, float(sys.argv[5]))
        return
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="how long, at most (%(default)s)")
    options.add_argument("--cases", type=int, default=10**9, help="how many, at most")
    options.add_argument("--seed", type=int, default=0, help="another one gives other cases")
    options.add_argument("--only", type=int, metavar="NUMBER", help="one case, in this process, with its traceback")
    chosen = options.parse_args()
    os.environ.update(env or {})
    if chosen.only is not None:
        print(outcome_of(case, chosen.seed, chosen.only) or "as it should be")
        return
    outcome = watch(script, chosen.seed, chosen.cases, chosen.minutes, env or {})
    report(outcome, script, chosen.seed, kind)
    sys.exit(bool(outcome.findings))


def tell(campaign: Callable[..., tuple[int, list[str]]], doc: str | None) -> None:
    """The command line of a campaign that counts its cases and writes its findings down itself."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, at most (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another one gives other cases")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case again")
    options = parser.parse_args()
    n_cases, findings = campaign(options.seed, options.minutes, only=options.only)
    print("\n".join([*findings, f"{n_cases} cases, {len(findings)} findings (seed {options.seed})"]))
    sys.exit(1 if findings else 0)
