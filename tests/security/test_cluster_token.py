"""A Ray cluster started by xmtc on this machine accepts only clients with its token.

Ray listens on all interfaces and runs the code of every client that connects.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from xmtc.cluster import connection

START = """
from xmtc.cluster.connection import connect
ray = connect("auto")
print(ray.get(ray.remote(lambda: 41 + 1).remote()), ray.get_runtime_context().gcs_address, flush=True)
input()
"""
JOIN = "import ray, sys; ray.init(sys.argv[1], logging_level='error'); print('joined')"


@pytest.fixture
def environment(monkeypatch, tmp_path) -> dict[str, str]:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")
    return dict(os.environ)


@pytest.mark.parametrize(
    ("existing", "mode"), [({}, "token"), ({"RAY_ADDRESS": "head:6379"}, None), ({"RAY_AUTH_MODE": "disabled"}, None)]
)
def test_token_is_required_unless_configured_otherwise(monkeypatch, tmp_path, existing, mode):
    """Without Ray: checks the environment that Ray reads when it is imported."""
    monkeypatch.setattr(connection, "CURRENT_CLUSTER_FILE", tmp_path / "none")
    monkeypatch.setattr(connection, "import_ray", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    for name, value in existing.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KeyboardInterrupt):
        connection.connect("auto")
    assert os.environ.get("RAY_AUTH_MODE") == (mode or existing.get("RAY_AUTH_MODE"))
    assert len(os.environ.get("RAY_AUTH_TOKEN", "")) == (64 if mode else 0)


def test_clients_without_the_token_are_rejected(environment):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'xmtc[cluster]', or make cluster-test")
    words = [sys.executable, "-c", START]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as started:
        try:
            answer, _, address = started.stdout.readline().strip().partition(" ")
            assert answer == "42"
            words = [sys.executable, "-c", JOIN, address]
            joined = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
            assert joined.returncode == 1
            assert "joined" not in joined.stdout
        finally:
            started.communicate("\n", timeout=60)
