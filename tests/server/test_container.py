"""Checks of the Dockerfile and the compose file, and runs of the steps that need no Docker."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "Dockerfile").exists():
    pytest.skip("the Dockerfile exists only in a checkout", allow_module_level=True)
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

LINES = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
STEPS = [(word, rest) for word, _, rest in (line.partition(" ") for line in LINES)]
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def steps(word: str) -> list[str]:
    return [rest for name, rest in STEPS if name == word]


def last_stage() -> list[tuple[str, str]]:
    return STEPS[max(place for place, (word, _) in enumerate(STEPS) if word == "FROM") :]


def test_every_line_is_an_instruction():
    assert {word for word, _ in STEPS} == KNOWN
    assert STEPS[0][0] == "FROM"
    for image in steps("FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim( AS \w+)?", image)


def test_image_runs_as_an_unprivileged_user():
    users = [rest for word, rest in last_stage() if word == "USER"]
    assert len(users) == 1
    assert all(int(number) >= 1000 for number in users[0].split(":"))
    words = [word for word, _ in last_stage()]
    assert words.index("USER") < words.index("ENTRYPOINT")


def test_copied_files_exist_and_are_in_the_build_context():
    included = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for copied in steps("COPY"):
        if copied.startswith("--from="):
            continue
        sources = copied.split()[:-1]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch(source, each) for each in included), source


def test_installed_packages_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install = next(rest for rest in steps("RUN") if " install --no-cache" in rest)
    lock = (ROOT / shlex.split(install)[-1]).read_text()
    (extras,) = re.findall(r"the extras (.*), pinned, with hashes", lock)
    assert "serve" in extras.split(", ")
    for extra in extras.split(", "):
        for line in project["optional-dependencies"][extra]:
            assert f"\n{re.split(r'[<>=;]', line)[0].lower()}==" in lock
    python = re.search(r"python:(3\.\d+)", steps("FROM")[0])[1]
    assert any(python in classifier for classifier in project["classifiers"])


def test_steps_that_need_no_docker(tmp_path):
    """Create the virtual environment and the cache folder, and import the precompile module."""
    venv = next(rest for rest in steps("RUN") if "-m venv" in rest)
    words = shlex.split(venv.replace("/opt/xmtc", str(tmp_path / "venv")))
    subprocess.run([sys.executable, *words[1:], "--without-pip"], check=True)
    assert (tmp_path / "venv" / "bin" / "python").exists()
    folder = next(rest for rest in steps("RUN") if rest.startswith("install -d"))
    words = shlex.split(folder.replace("/cache", str(tmp_path / "cache")))
    words = [word for word in words if word not in ("-o", "-g", "10001")]  # these need root
    subprocess.run(words, check=True)
    assert (tmp_path / "cache").is_dir()
    precompile = next(shlex.split(rest) for rest in steps("RUN") if "precompile" in rest)
    assert precompile[:2] == ["python", "-m"]
    __import__(precompile[2])


def test_container_starts_and_passes_its_health_check(tmp_path):
    """Run the entry point and the health check."""
    from serving import make_model, running

    model = make_model(tmp_path / "model")
    entry, command = json.loads(steps("ENTRYPOINT")[0]), json.loads(steps("CMD")[0])
    assert entry[:2] == ["xmtc", "serve"]
    arguments = [str(model) if word == "/models/model" else word for word in command]
    options = entry[2 : entry.index("--port")]
    with running(*options, *arguments) as service:
        health = json.loads(steps("HEALTHCHECK")[0].partition("CMD ")[2])
        assert ":8000/" in health[-1]
        check = [sys.executable, *health[1:-1], health[-1].replace(":8000/", f":{service.port}/")]
        assert subprocess.run(check).returncode == 0
    assert subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0


def test_compose_file_restricts_privileges():
    (service,) = COMPOSE["services"].values()
    known = {"build", "command", "ports", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt", "restart"}
    assert service.keys() == known | {"stop_grace_period"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in service["tmpfs"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["ports"][0].endswith(f":{steps('EXPOSE')[0]}")
    mounted = dict(each.split(":")[:2] for each in service["volumes"])
    assert mounted["./models"] == "/models"
    assert service["volumes"][0].endswith(":ro")
    assert mounted["cache"] == "/cache"
    assert "cache" in COMPOSE["volumes"]


def test_command_of_the_compose_file_is_valid():
    from typer.main import get_command

    from xmtc.cli import app
    from xmtc.server.settings import ServiceLimits

    (service,) = COMPOSE["services"].values()
    command = get_command(app).commands["serve"]
    context = command.make_context("serve", [*json.loads(steps("ENTRYPOINT")[0])[2:], *service["command"]])
    assert context.params["watch"] is True
    assert context.params["host"] == "0.0.0.0"
    assert context.params["models"] == ["/models/model"]
    assert float(service["stop_grace_period"].removesuffix("s")) > ServiceLimits().seconds + 1
