"""What a thread of its own does ahead of the others, or behind them."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from xmtc.core.threads import BackgroundWorker, PrefetchIterator


def test_items_are_made_before_anybody_asks():
    made = []
    with closing(PrefetchIterator((made.append(i) or i for i in range(100)), 5)) as items:
        items.pool.submit(int).result()  # after the five
        assert made == [0, 1, 2, 3, 4]
        assert list(items) == list(range(100))


def test_an_error_comes_in_its_place():
    with closing(PrefetchIterator((1 // (3 - i) for i in range(9)), 8)) as items:
        stream = iter(items)
        assert [next(stream) for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(stream)


def test_after_closing_nothing_more_is_made():
    made, gate = [], threading.Event()

    def wait(i: int) -> int:
        gate.wait(10)
        made.append(i)
        return i

    items = PrefetchIterator(map(wait, range(100)), 50)
    threading.Timer(0.05, gate.set).start()
    items.close()
    assert len(made) < 50


def test_work_is_done_in_its_order_and_few_wait():
    done, gate = [], threading.Event()

    def work(i: int) -> None:
        gate.wait(10)
        done.append(i)

    with closing(BackgroundWorker(work, 3)) as behind:
        for i in range(3):
            behind(i)
        assert not done
        gate.set()
        for i in range(3, 40):
            behind(i)
            assert len(behind.pending) <= 3
        behind.finish()
        assert done == list(range(40))


def test_whoever_hands_work_over_hears_of_its_errors():
    behind = BackgroundWorker(int, 3)
    behind("no number")
    with pytest.raises(ValueError, match="invalid literal"):
        behind.finish()
    behind.close()
