"""Messages as agents hold them: mappings, objects or texts, with content as text or in parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

USER: Final = frozenset({"user", "human"})
ASSISTANT: Final = frozenset({"assistant", "ai", "model", "bot"})
TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})

#: What a field is that is not there.
MISSING: Final = object()


def check_messages(messages: object) -> Iterable[Any]:
    """Return messages if they are a list of them, or say what they are."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(
            f"messages must be a list of messages, got {type(messages).__name__}; put a single message in a list"
        )
    return messages


def field_of(holder: Any, name: str) -> Any:
    """Return a field of a mapping or an object, MISSING when it has none."""
    return holder.get(name, MISSING) if isinstance(holder, Mapping) else getattr(holder, name, MISSING)


def role_of(message: Any, where: str) -> str:
    """Return a message's role, folded; a text is the user's."""
    if isinstance(message, str):
        return "user"
    role = field_of(message, "role")
    if role is MISSING:
        role = field_of(message, "type")  # "human", "ai", … on messages of some frameworks
    if role is MISSING and field_of(message, "content") is not MISSING:
        return "user"
    if role is MISSING:
        raise TypeError(
            f"{where} is {type(message).__name__} without role and content; pass text, a mapping such as "
            '{"role": "user", "content": "…"}, or an object with these attributes'
        )
    role = getattr(role, "value", role)  # an enum's
    if not isinstance(role, str):
        raise TypeError(f"the role of {where} is {type(role).__name__}; it must be text, such as user or assistant")
    return role.strip().casefold()


def parts_of(message: Any, where: str) -> list[Any]:
    """Return the parts of a message's content; text is one part."""
    content = message if isinstance(message, str) else field_of(message, "content")
    if content is None or content is MISSING:
        return []
    if isinstance(content, str):
        return [content]
    if isinstance(content, Mapping) or not isinstance(content, Iterable):
        raise TypeError(f"the content of {where} is {type(content).__name__}; it must be text, None or a list of parts")
    return list(content)


def text_of(message: Any, where: str) -> str:
    """Return what a message says, its text parts a line each; empty when nothing of it can be seen."""
    return visible("\n".join(text for part in parts_of(message, where) if (text := part_text(part, where)).strip()))


def part_text(part: Any, where: str) -> str:
    """Return the text of a part; empty for one of another sort."""
    if isinstance(part, str):
        return part
    kind, text = field_of(part, "type"), field_of(part, "text")
    if kind is not MISSING and kind not in TEXT_PARTS:
        return ""
    if text is None or text is MISSING:
        return ""
    if not isinstance(text, str):
        raise TypeError(f"a text part of {where} holds {type(text).__name__}; its text must be text")
    return text


def visible(text: str) -> str:
    """Return a text without white space around it, empty if nothing can be seen; lone surrogates become U+FFFD."""
    if not any(character.isprintable() and not character.isspace() for character in text):
        return ""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.strip()
