"""Short run of the campaign of hostile model folders, and checks of its audit hook. The full campaign takes minutes:
python tests/campaigns/folders.py --cases 20000."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
WATCHED = """
import os, subprocess, socket, sys, tempfile
sys.path[:0] = [{campaigns!r}]
from audit_watch import CALLS, Touch, Watch, create_outside_file
watch = Watch()
with tempfile.TemporaryDirectory() as place:
    open(os.path.join(place, "inside"), "w").close()
    os.symlink(create_outside_file(), os.path.join(place, "link"))
    try:
        with watch.watching(place):
            try:
                {code}
            except PermissionError:
                pass
    except AssertionError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("open(os.path.join(place, 'inside')).close()", ""),
        ("os.mkdir(os.path.join(place, 'new'))", ""),
        (
            "open(create_outside_file.__globals__['os'].path.expanduser('/etc/hostname')).close()",
            "open of /etc/hostname (r)",
        ),
        ("open(os.path.join(place, 'link')).close()", "/link (r)"),
        ("import antigravity_of_nobody", "import of antigravity_of_nobody"),
        ("import turtledemo", "import of turtledemo"),
        ("subprocess.Popen(['true'])", "a process: ('true', ['true'])"),
        ("os.system('true')", "os.system: (b'true',)"),
        ("socket.create_connection(('127.0.0.1', 9))", "socket.getaddrinfo: ('127.0.0.1', 9"),
        ("socket.socket().connect(('127.0.0.1', 9))", "socket.connect: "),
        ("eval('1  # xmtc_canary')", "code of a file was compiled"),
        ("os.remove('/nowhere/x')", "os.remove of /nowhere/x"),
        ("Touch(args=[1])", "call of Touch with () and {'args': [1]}"),
    ],
)
def test_audit_hook_detects_violations(code: str, seen: str) -> None:
    caught = code if "nobody" not in code and "remove" not in code else f"exec({code!r})"
    program = WATCHED.format(campaigns=str(TESTS / "campaigns"), code=caught)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (seen in done.stdout) if seen else done.stdout == "", done.stdout + done.stderr


def test_hostile_folders_give_one_line_errors(tmp_path: Path) -> None:
    """In its own process, because an audit hook cannot be removed."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "XMTC_CAMPAIGN": str(tmp_path), "TQDM_DISABLE": "1"}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS / "campaigns"), str(TESTS / "support")])
    }
    code = "import cases, folders, json\n"
    code += "outcome = cases.run_in_process(folders.case, 2026, range(400))\n"
    code += "print(json.dumps([outcome.n_cases, outcome.n_refused, outcome.findings]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    n_cases, n_refused, findings = json.loads(done.stdout.splitlines()[-1])
    assert findings == []
    assert n_cases == 400
    assert 200 < n_refused < 390, "most cases should be refused, and not all"
