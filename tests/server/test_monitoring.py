"""Prometheus and Grafana beside the service: files, names and labels of the dashboard, and scraping under the name of
the container."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging/monitoring"
if not FOLDER.exists():
    pytest.skip("the files are in the checkout alone", allow_module_level=True)
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402
from serving import make_model, running  # noqa: E402

from xmtc.server.metrics import Metrics  # noqa: E402

COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PANELS = json.loads((FOLDER / "grafana/dashboards/xmtc.json").read_text())["panels"]


def list_exported_labels() -> dict[str, set[str]]:
    """Return the names of the samples of a service, each with its labels."""
    metrics = Metrics()
    metrics.requests.labels("predict", "POST", "200").inc()
    metrics.seconds.labels("predict").observe(1)
    metrics.reloads.labels("model", "done").inc()
    metrics.batch_observer("model")(1)
    metrics.drift_warning.labels("model", "words").set(0)
    for gauge in metrics.drift.values():
        gauge.labels("model", "recent").set(0)
    families = text_string_to_metric_families(metrics.render().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def test_dashboard_shows_metrics_of_the_service():
    exported = list_exported_labels()
    for panel in PANELS:
        for target in panel["targets"]:
            names = re.findall(r"xmtc_\w+", target["expr"])
            groups = {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert names
            assert all(groups <= exported[name] for name in names), target["expr"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= groups


def test_mounted_files_exist():
    mounts = [mount for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(files) == 3
    assert all((ROOT / file).exists() for file in files)
    assert {mount.split(":")[0] for mount in mounts if not mount.startswith("./")} <= COMPOSE["volumes"].keys()


def test_prometheus_may_ask_the_service(tmp_path):
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    assert target.split(":")[0] in COMPOSE["services"]
    model, *options = COMPOSE["services"]["xmtc"]["command"]
    assert model == "/models/model"
    with running(make_model(tmp_path / "model"), *options) as service:
        request = urllib.request.Request(f"{service.url}/metrics", headers={"Host": target})
        with urllib.request.urlopen(request) as answer:
            assert b"xmtc_requests_running" in answer.read()
