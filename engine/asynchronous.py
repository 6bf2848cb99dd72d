"""The calls of an engine, or of a handle to one, that do not block an event loop: each is the plain one in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jiyi.context import Context
    from jiyi.hits import Hits
    from jiyi.memory import MemoryLike

# Inside a class with a method `list`, that name is the method.
_List = list


class _Calls(Protocol):
    @property
    def add(self) -> Callable[..., str]: ...
    @property
    def add_many(self) -> Callable[..., _List[str]]: ...
    @property
    def add_messages(self) -> Callable[..., _List[str]]: ...
    @property
    def search(self) -> Callable[..., Hits]: ...
    @property
    def build_context(self) -> Callable[..., Context]: ...


class Asynchronous:
    """To be inherited by what has these calls without the `a`."""

    __slots__ = ()

    async def aadd(self: _Calls, memory: MemoryLike, **fields: Any) -> str:
        """`add`, without blocking the event loop."""
        return await asyncio.to_thread(self.add, memory, **fields)

    async def aadd_many(self: _Calls, memories: Iterable[MemoryLike], **settings: Any) -> _List[str]:
        """`add_many`, without blocking the event loop."""
        return await asyncio.to_thread(self.add_many, memories, **settings)

    async def aadd_messages(self: _Calls, messages: Iterable[Any], **settings: Any) -> _List[str]:
        """`add_messages`, without blocking the event loop."""
        return await asyncio.to_thread(self.add_messages, messages, **settings)

    async def asearch(self: _Calls, query: str, **settings: Any) -> Hits:
        """`search`, without blocking the event loop."""
        return await asyncio.to_thread(self.search, query, **settings)

    async def abuild_context(self: _Calls, messages: Sequence[Any], **settings: Any) -> Context:
        """`build_context`, without blocking the event loop."""
        return await asyncio.to_thread(self.build_context, messages, **settings)
