"""Run the cases of a campaign. Each case depends only on the seed and its number, so it can be repeated.

A case may succeed or raise XmtcError; everything else is a finding. Cases run in their own process with limits of
memory and time; if it dies, that is a finding, and another process continues.
"""

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

SECONDS = 60  # time limit of a case in seconds; on a busy machine, the slowest takes one or two
ROOM = 4 << 30  # bytes of memory in addition to those at the start of the cases
DEFAULT_MINUTES = 5.0


END = {(True, False): "refused", (False, True): "finding", (False, False): "answered"}


@dataclass
class Outcome:
    n_cases: int = 0
    n_refused: int = 0
    ends: list[str] = field(default_factory=list)  # per case: answered, rejected or finding
    findings: list[tuple[int, str]] = field(default_factory=list)  # number of the case and its outcome


def run_case(case: Case, seed: int, number: int) -> str | None:
    """Return the problem of a case: "" if none, None if it was rejected."""
    try:
        case(seed, number)
    except XmtcError as error:
        return f"a sentence of several lines: {error}" if "\n" in str(error) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic in Rust is not an Exception
        return traceback.format_exc()
    return ""


def run_in_process(case: Case, seed: int, numbers: Iterator[int] | range) -> Outcome:
    """Run cases in this process, for tests and for debugging."""
    outcome = Outcome()
    for number in numbers:
        found = run_case(case, seed, number)
        outcome.n_cases += 1
        outcome.n_refused += found is None
        outcome.ends.append(END[found is None, bool(found)])
        if found:
            outcome.findings.append((number, found))
    return outcome


def run_cases(case: Case, seed: int, first: int, last: int, stop_at: float) -> None:
    """Run the cases of a process; print the number before each case, and its outcome afterwards."""
    limit_memory()
    for number in range(first, last):
        if time.time() > stop_at:
            break
        print(json.dumps(number), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        found = run_case(case, seed, number)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([found]), flush=True)


def limit_memory() -> None:
    """Limit memory relative to what is already mapped, because PyTorch maps more than it uses."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError):
        pass  # no limit on systems without /proc


def watch(script: str, seed: int, n_cases: int, minutes: float, env: dict[str, str]) -> Outcome:
    """Start processes one after the other until the cases or minutes are over."""
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
    """Collect the output of a process; return True if it ended within a case."""
    is_open = False
    for line in process.stdout or ():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # output of libraries
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
        if seen[last] <= 3:  # findings of one kind
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
    """Run the command line of a campaign; exit with 1 if there are findings. `kind` returns the group in which a case
    is counted."""
    if sys.argv[1:2] == ["--work"]:
        seed, first, last = map(int, sys.argv[2:5])
        run_cases(case, seed, first, last, float(sys.argv[5]))
        return
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="how long, at most (%(default)s)")
    options.add_argument("--cases", type=int, default=10**9, help="how many, at most")
    options.add_argument("--seed", type=int, default=0, help="another one gives other cases")
    options.add_argument("--only", type=int, metavar="NUMBER", help="one case, in this process, with its traceback")
    chosen = options.parse_args()
    os.environ.update(env or {})
    if chosen.only is not None:
        print(run_case(case, chosen.seed, chosen.only) or "as it should be")
        return
    outcome = watch(script, chosen.seed, chosen.cases, chosen.minutes, env or {})
    report(outcome, script, chosen.seed, kind)
    sys.exit(bool(outcome.findings))


def run_counted(campaign: Callable[..., tuple[int, list[str]]], doc: str | None) -> None:
    """Run the command line of a campaign that counts its cases and records its findings itself."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, at most (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another one gives other cases")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case again")
    options = parser.parse_args()
    n_cases, findings = campaign(options.seed, options.minutes, only=options.only)
    print("\n".join([*findings, f"{n_cases} cases, {len(findings)} findings (seed {options.seed})"]))
    sys.exit(1 if findings else 0)
