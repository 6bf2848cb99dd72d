"""Work ahead in a thread: what is read, or analysed, next while this is being stored."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

_POLL_S: Final = 0.1


class _End:
    """Nothing more comes; or this was raised."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def ahead(items: Iterable[T], depth: int, name: str) -> Iterator[Iterator[T]]:
    """Take items from an iterable in a thread of its own, at most `depth` more than were asked for.

    What the iterable raises is raised to whoever asks for the next item. Leaving the block ends the thread, behind the
    item that it is at.
    """
    waiting: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(item: T | _End) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as error:
            put(_End(error))
        else:
            put(_End())

    def taken() -> Iterator[T]:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    thread = threading.Thread(target=work, name=f"jiyi-{name}", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join()
