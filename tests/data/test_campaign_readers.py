"""Short run of the campaign of damaged corpora, and the program that runs campaigns. The full campaign takes minutes:
python tests/campaigns/readers.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGNS = Path(__file__).parents[1] / "campaigns"
sys.path.insert(0, str(CAMPAIGNS))

import cases  # noqa: E402
import readers  # noqa: E402

from xmtc.errors import XmtcError  # noqa: E402

pytestmark = pytest.mark.integration


def test_damaged_corpora_have_no_findings():
    outcome = cases.run_in_process(readers.case, 2026, range(600))
    assert outcome.findings == []
    assert 100 < outcome.n_refused < 500, "most cases should be damaged, and not all"


@pytest.mark.parametrize("name", sorted(readers.make_corpora()))
def test_campaign_starts_with_valid_corpora(name, tmp_path):
    rng = readers.np.random.default_rng(1)  # which does not change the names
    path = readers.write(tmp_path, readers.make_corpora()[name], name, rng)
    documents = list(readers.open_corpus(path, name.partition(",")[0]))
    assert len(documents) in (1, 4, 6)
    assert any(document.labels for document in documents)


def outcomes(seed: int, number: int) -> None:
    if number == 1:
        raise XmtcError("A sentence.")
    if number == 2:
        raise KeyError("no sentence")
    if number == 3:
        raise SystemExit(3)


def test_unexpected_errors_are_findings():
    outcome = cases.run_in_process(outcomes, 0, range(5))
    assert (outcome.n_cases, outcome.n_refused) == (5, 1)
    assert [number for number, _ in outcome.findings] == [2, 3]


SCRIPT = """
import os, sys
sys.path.insert(0, {campaigns!r})
import cases

def case(seed, number):
    if number == 3:
        os.abort()
    if number == 5:
        raise KeyError(seed)

cases.main(__file__, case, None)
"""


def test_dead_process_is_a_finding_and_others_continue(tmp_path):
    script = tmp_path / "campaign.py"
    script.write_text(SCRIPT.format(campaigns=str(CAMPAIGNS)))
    command = [sys.executable, str(script), "--seed", "7", "--cases", "9", "--minutes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 1
    assert "campaign, seed 7: 9 cases, 7 answered, 0 refused in a sentence, 2 findings." in done.stdout
    assert "case 3 " in done.stdout
    assert "KeyError: 7" in done.stdout
    assert subprocess.run([*command[:-2], "--cases", "3"], capture_output=True, timeout=120).returncode == 0
