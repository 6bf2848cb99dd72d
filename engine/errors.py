"""Errors that jiyi raises. Wrong arguments are plain `ValueError` and `TypeError`; these are for everything else."""

from __future__ import annotations

from jiyi.paths import shown
from jiyi.quoted import quoted


class JiyiError(Exception):
    """Root of all errors that are jiyi's own."""


class ClosedError(JiyiError):
    """The engine was used after `close()`."""

    def __init__(self) -> None:
        super().__init__("the engine is closed; open the store again with jiyi.open(path)")


class ForkedError(JiyiError):
    """The engine was opened in a parent process and used in its forked child.

    With `busy`, the child cannot open a store by itself either: the parent was at work in one when it forked.
    """

    def __init__(self, opened_by_pid: int, pid: int, *, busy: bool = False) -> None:
        self.opened_by_pid = opened_by_pid
        self.pid = pid
        self.busy = busy
        if busy:
            super().__init__(
                f"process {opened_by_pid} was at work in a store for several seconds when it forked its child {pid}, "
                "which can open none therefore; fork when no long call runs, or start processes with 'spawn'"
            )
            return
        super().__init__(
            f"this engine belongs to process {opened_by_pid} and was used in its child {pid}; "
            "open the store again in the child, with read_only=True while the parent writes"
        )


class NotFoundError(JiyiError, KeyError):
    """No memory has this id."""

    def __init__(self, memory_id: str, namespace: str) -> None:
        self.memory_id = memory_id
        self.namespace = namespace
        super().__init__(f"no memory {quoted(memory_id)} in namespace {quoted(namespace)}")

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class StoreError(JiyiError):
    """The store's files could not be read or written. The cause is in `__cause__`."""

    @property
    def os_error(self) -> OSError | None:
        """What the operating system said (a full disk, a read-only folder), if it is to blame."""
        cause: BaseException | None = self.__cause__
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        return cause


class LostWritesWarning(UserWarning):
    """Changes that were acknowledged are not in the store that was opened; what is there can be used."""


class DamagedError(StoreError):
    """A memory is not what was written: bytes of the store's files have changed since."""

    def __init__(self, label: int, memory_id: object, namespace: str) -> None:
        self.label = label
        self.memory_id = memory_id
        self.namespace = namespace
        super().__init__(
            f"the memory {quoted(memory_id)} (label {label}) in namespace {quoted(namespace)} is damaged: it is not "
            "what was written. `jiyi verify` (engine.verify()) lists all that are, and `jiyi verify --repair OUT` "
            "(jiyi.salvage) saves every other into a new store"
        )


class StoreVersionError(StoreError):
    """The folder holds a store of a format that this version of jiyi does not know."""

    def __init__(self, path: str, found: str, supported: str, *, can_upgrade: bool = False) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        advice = (
            "Open it once for writing, which upgrades it"
            if can_upgrade
            else "Open it with the jiyi that wrote it, or upgrade jiyi"
        )
        super().__init__(f"{shown(path)} is a store of format {found}; this jiyi reads format {supported}. {advice}")


class StoreLockedError(StoreError):
    """Another process writes to this store."""

    def __init__(self, path: str, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"{shown(path)} is open for writing by {holder}; close it there, or open it here with read_only=True "
            "(commands that only read do so by themselves)"
        )


class ReadOnlyError(StoreError):
    """A write was asked of a store that was opened with `read_only=True`."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"{call}() writes, and this store is open read-only; open it without read_only=True")


class ModelError(JiyiError):
    """A model is needed that cannot be used: its files are missing or damaged. The cause is in `__cause__`."""


class DimensionError(JiyiError, ValueError):
    """A vector's length is not the store's."""

    def __init__(self, got: int, expected: int, what: str) -> None:
        self.got = got
        self.expected = expected
        super().__init__(
            f"{what} has {got} dimensions and the store's vectors have {expected}; "
            "pass vectors of the store's dimension. Keyword search works without one"
        )


class ModelMismatchError(JiyiError, ValueError):
    """The engine's embedder is not the one that the store's vectors were made with."""

    def __init__(self, got: str, got_dim: int, expected: str, expected_dim: int, damage: str | None = None) -> None:
        """Say which models they are; `damage` is why the store's own, which is here, could not be loaded."""
        self.got = got
        self.got_dim = got_dim
        self.expected = expected
        self.expected_dim = expected_dim
        self.damage = damage
        opened = f"the engine was opened with {got!r} ({got_dim} dimensions)"
        if damage is None:
            advice = f" and {opened}; open it with {expected!r}, or embed it anew: `jiyi reindex`"
        else:
            advice = f", which cannot be loaded ({damage}), and {opened}; mend it, or embed the store anew"
        super().__init__(
            f"the store's vectors come from {expected!r} ({expected_dim} dimensions){advice}. "
            "Until then only keyword search works"
        )
