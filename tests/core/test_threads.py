"""Number of threads: CPUs, container quotas, environment variables, PyTorch and explicit settings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from xmtc import Run, XmtcError
from xmtc.core import threads
from xmtc.core.threads import count_available_threads


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """Simulate a machine with 16 CPUs, no quota, no environment variables and no PyTorch."""
    for variable in threads.THREAD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(threads, "count_cpus", lambda: 16)
    monkeypatch.setattr(threads, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "PROCESS_CGROUP_FILE", tmp_path / "own")
    monkeypatch.setattr(threads, "sys", SimpleNamespace(modules={}))
    threads.read_cpu_quota.cache_clear()
    yield tmp_path
    threads.read_cpu_quota.cache_clear()


def write(folder, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_default_is_the_number_of_cpus():
    assert count_available_threads() == 16


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OMP_NUM_THREADS": "4"}, 4),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"NUMBA_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
        ({"LOKY_MAX_CPU_COUNT": "2"}, 2),
        ({"OMP_NUM_THREADS": "64"}, 16),
        ({"OMP_NUM_THREADS": "0", "NUMBA_NUM_THREADS": "", "LOKY_MAX_CPU_COUNT": "many"}, 16),
    ],
)
def test_environment_variables_limit_threads(variables, expected, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert count_available_threads() == expected


@pytest.mark.parametrize(
    ("quota", "expected"), [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 16)]
)
def test_a_container_has_the_cpus_of_its_quota(quota, expected, machine):
    (machine / "own").write_text("0::/\n")
    write(machine / "cgroup", cpu__max=quota)
    assert count_available_threads() == expected


def test_quota_of_a_parent_group_applies(machine):
    (machine / "own").write_text("0::/user.slice/session\n")
    write(machine / "cgroup" / "user.slice" / "session", cpu__max="800000 100000\n")
    write(machine / "cgroup" / "user.slice", cpu__max="300000 100000\n")
    assert count_available_threads() == 3


@pytest.mark.parametrize("name", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "expected"), [("400000\n", 4), ("-1\n", 16)])
def test_quota_of_control_groups_version_1(name, quota, expected, machine):
    """Test a group path that does not exist in the container, whose own group is mounted at the root."""
    (machine / "own").write_text(f"7:memory:/x\n4:{name}:/docker/0123\n0::/docker/0123\n")
    write(machine / "cgroup" / name, cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000\n")
    assert count_available_threads() == expected


@pytest.mark.parametrize("content", ["", "nonsense\n", "100000\n", "1 0\n"])
def test_unreadable_quota_is_ignored(content, machine):
    (machine / "own").write_text("0::/\n")
    write(machine / "cgroup", cpu__max=content)
    assert count_available_threads() == 16


def test_thread_setting_of_pytorch_limits_threads():
    for n_threads, expected in ((1, 1), (7, 7), (8, 16), (16, 16)):  # 8 of 16 may be PyTorch's default: one per core
        threads.sys.modules["torch"] = SimpleNamespace(get_num_threads=lambda n_threads=n_threads: n_threads)
        assert count_available_threads() == expected


def test_default_run_counts_threads_at_use(monkeypatch):
    run = Run()
    assert run.n_threads == 16
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert run.n_threads == 3
    assert (Run(threads=5).n_threads, Run(5).threads) == (5, 5)  # an explicit number is used as it is


@pytest.mark.parametrize("threads", [-1, 1.5, "2", None, True])
def test_invalid_thread_numbers_are_rejected(threads):
    with pytest.raises(XmtcError, match=r"threads=.* is invalid; expected 0"):
        Run(threads=threads)


def test_map_uses_all_threads(monkeypatch):
    from threading import Barrier, get_ident

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    barrier = Barrier(3)

    def work(item: int) -> int:
        barrier.wait(timeout=30)  # waits for two other threads
        return get_ident()

    assert len(set(Run().map(work, range(6), "working"))) == 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to a CPU")
def test_a_process_bound_to_a_cpu_has_one_thread():
    bind = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code = f"{bind}; from xmtc import Run; print(Run().n_threads)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_joblib_workers_share_the_cpus():
    """Check that joblib's environment variables limit the threads of its worker processes."""
    code = (
        "from joblib import Parallel, delayed, parallel_config\n"
        "from xmtc.core.threads import count_available_threads\n"
        "with parallel_config('loky', n_jobs=2, inner_max_num_threads=1):\n"
        "    print(Parallel()(delayed(count_available_threads)() for _ in range(2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 1]\n"


class TestNetworks:
    """Number of PyTorch threads during training and prediction."""

    @pytest.fixture(autouse=True)
    def torch(self, monkeypatch, machine):
        monkeypatch.setattr(threads, "sys", sys)
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(threads, "count_cpus", lambda: 4)
        before = torch.get_num_threads()
        torch.set_num_threads(4)
        yield torch
        torch.set_num_threads(before)

    def count_threads(self, torch, run: Run, n_inputs: int, n_docs: int = 100) -> int:
        from xmtc.nn.devices import choose_thread_count, use_torch_settings

        network = torch.nn.Sequential(torch.nn.Embedding(100_000, 4), torch.nn.Linear(n_inputs, 1000))
        with use_torch_settings(run, torch.device("cpu"), threads=choose_thread_count(run, network, n_docs)):
            return torch.get_num_threads()

    def test_small_network_uses_one_thread(self, torch):
        assert self.count_threads(torch, Run(), 10) == 1
        assert self.count_threads(torch, Run(), 100) == 2
        assert self.count_threads(torch, Run(), 1000) == 4
        assert torch.get_num_threads() == 4

    def test_explicit_thread_settings_are_used(self, torch):
        assert self.count_threads(torch, Run(threads=3), 10) == 3
        torch.set_num_threads(2)
        assert self.count_threads(torch, Run(), 1000) == 2
        assert torch.get_num_threads() == 2

    def test_quota_limits_network_threads(self, torch, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert self.count_threads(torch, Run(), 1000) == 2

    def test_small_network_predicts_with_one_thread(self, torch, monkeypatch):
        from xmtc import Classifier
        from xmtc.methods import method_class
        from xmtc.nn import devices
        from xmtc.testing import make_planted_corpus

        texts, tags = make_planted_corpus(60, seed=1)
        small = method_class("xml_rnn").quick_parameters | {"epochs": 1}
        classifier = Classifier("xml_rnn", **small).fit(texts, tags, run=Run(device="cpu"))
        n_threads, set_num_threads = [], torch.set_num_threads
        monkeypatch.setattr(devices.torch, "set_num_threads", lambda n: (n_threads.append(n), set_num_threads(n)))
        classifier.rank(texts, run=Run(device="cpu"))
        assert n_threads == [1, 4]  # the previous number is restored
        classifier.rank(texts, run=Run(threads=2, device="cpu"))
        assert n_threads == [1, 4, 2, 4]


def test_cache_with_lock_computes_once_for_concurrent_calls():
    calls = []

    @threads.cache_with_lock
    def square(number: int) -> int:
        time.sleep(0.01)
        calls.append(number)
        return number**2

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(square, [3] * 8)) == [9] * 8
    assert calls == [3]
