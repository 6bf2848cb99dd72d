"""Fields of items from anywhere: mappings, objects, search hits; nested ones too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from jiyi.quoted import quoted

#: A field's name ("content", "metadata.timestamp"), or a function from the item to the value.
Field = str | Callable[[Any], Any]

# Where the fields are looked for when not told: the first that is there counts.
TEXT_FIELDS: Final = ("text", "content", "page_content", "memory.text")
TIMESTAMP_FIELDS: Final = ("timestamp", "metadata.timestamp", "memory.timestamp")
ID_FIELDS: Final = ("id", "memory.id")

#: What a field is that is not there.
MISSING: Final = object()


class FieldReader:
    """Reads one field of an item: by a function, by a given name, or by the first default name that is there."""

    def __init__(self, what: str, given: Field | None, defaults: tuple[str, ...]) -> None:
        if given is not None and not isinstance(given, str) and not callable(given):
            raise TypeError(
                f"{what} is {type(given).__name__}; it must be the name of a field or a function of the item"
            )
        if given == "":
            raise ValueError(f"{what} is empty; it must be the name of a field or a function of the item")
        self.what = what
        self.is_default = given is None
        self._function = given if callable(given) else None
        self._paths = [path.split(".") for path in ((given,) if isinstance(given, str) else defaults)]
        self.where = " or ".join(".".join(path) for path in self._paths)

    def read(self, item: Any) -> Any:
        """The value, None if it is there and None, MISSING if it is not there."""
        if self._function is not None:
            return self._function(item)
        found = MISSING
        for path in self._paths:
            value = _at(item, path)
            if value is not MISSING and value is not None:
                return value
            found = value if found is MISSING else found
        return found

    def check_found(self, items: Sequence[Any]) -> None:
        """Refuse a name that the caller gave and that no item has: it is misspelt."""
        if self.is_default or self._function is not None or not items:
            return
        if all(self.read(item) is MISSING for item in items):
            raise ValueError(
                f"no item has the field {quoted(self.where)} that {self.what}= names; check its spelling, or give a "
                "function that takes the item"
            )


def _at(item: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys and attributes. A key that has the dots in its name comes first."""
    if len(path) > 1 and isinstance(item, Mapping) and (name := ".".join(path)) in item:
        return item[name]
    for name in path:
        item = item.get(name, MISSING) if isinstance(item, Mapping) else getattr(item, name, MISSING)
        if item is MISSING:
            break
    return item
