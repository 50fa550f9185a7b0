"""Prefetching iterator and background worker."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from xmtc.core.threads import BackgroundWorker, PrefetchIterator


def test_items_are_produced_in_advance():
    items_produced = []
    with closing(PrefetchIterator((items_produced.append(i) or i for i in range(100)), 5)) as items:
        items.pool.submit(int).result()  # waits for the first five items
        assert items_produced == [0, 1, 2, 3, 4]
        assert list(items) == list(range(100))


def test_error_is_raised_at_its_item():
    with closing(PrefetchIterator((1 // (3 - i) for i in range(9)), 8)) as items:
        stream = iter(items)
        assert [next(stream) for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(stream)


def test_close_stops_production():
    items_produced, gate = [], threading.Event()

    def wait(i: int) -> int:
        gate.wait(10)
        items_produced.append(i)
        return i

    items = PrefetchIterator(map(wait, range(100)), 50)
    threading.Timer(0.05, gate.set).start()
    items.close()
    assert len(items_produced) < 50


def test_worker_keeps_the_order_and_limits_the_queue():
    done, gate = [], threading.Event()

    def work(i: int) -> None:
        gate.wait(10)
        done.append(i)

    with closing(BackgroundWorker(work, 3)) as worker:
        for i in range(3):
            worker(i)
        assert not done
        gate.set()
        for i in range(3, 40):
            worker(i)
            assert len(worker.pending) <= 3
        worker.finish()
        assert done == list(range(40))


def test_worker_error_is_raised_in_the_caller():
    worker = BackgroundWorker(int, 3)
    worker("no number")
    with pytest.raises(ValueError, match="invalid literal"):
        worker.finish()
    worker.close()
