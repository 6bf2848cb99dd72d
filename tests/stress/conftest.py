"""What tests of threads and processes share with those of the engine."""

from tests.engine.conftest import child, folder

__all__ = ["child", "folder"]
