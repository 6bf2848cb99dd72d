"""A conversation as agents hold it, as episodic memories: one a message that says something.

What stands beside the text goes into the metadata: tool calls with the beginning of what they returned, images and
files by type, size and digest, never their bytes. A conversation that has grown can be given again, whole or its end,
and only what is new is stored (`jiyi.continuation`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from jiyi.continuation import Turn, add_new, content_digest, turn_id
from jiyi.memory import Memory
from jiyi.messages import ASSISTANT, MISSING, USER, check_messages, field_of, part_text, parts_of, role_of, visible
from jiyi.quoted import quoted
from jiyi.store import Store
from jiyi.timestamps import to_datetime, to_microseconds

_SYSTEM: Final = frozenset({"system", "developer"})
_TOOL: Final = frozenset({"tool", "function", "ipython"})
_CALLS: Final = frozenset({"tool_use", "function_call", "server_tool_use"})
_RESULTS: Final = frozenset({"tool_result", "function_call_output", "tool_response"})
_IMAGES: Final = frozenset({"image", "image_url", "input_image"})
_FILES: Final = frozenset({"file", "input_file", "document", "audio", "input_audio", "video", "video_url", "audio_url"})
_TIMES: Final = ("timestamp", "created_at", "time")

# Of arguments and results of tools so much is kept: they can be whole files.
_LONGEST_VALUE: Final = 2_000
_LONGEST_RESULT: Final = 500
_DEEPEST: Final = 16


@dataclass(slots=True)
class _Said:
    """One message."""

    role: str
    speaker: str
    text: str
    time: datetime | None
    images: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)


def add_conversation(
    store: Store,
    messages: Iterable[Any],
    *,
    session: str,
    namespace: str,
    roles: frozenset[str],
    metadata: Mapping[str, Any],
    now: datetime,
) -> list[str]:
    """Store what is new of a conversation; return the ids, oldest first. See `Engine.add_messages`.

    Raises:
        TypeError, ValueError: a message is none, or a part of one is not as it must be; the message says which.
    """
    memories, turns = conversation_memories(
        messages, session=session, namespace=namespace, roles=roles, metadata=metadata, now=now
    )
    return add_new(store, memories, turns, session=session, namespace=namespace, now=now)


def conversation_memories(
    messages: Iterable[Any],
    *,
    session: str,
    namespace: str,
    roles: frozenset[str],
    metadata: Mapping[str, Any],
    now: datetime,
) -> tuple[list[Memory], list[Turn]]:
    """Turn messages into memories, oldest first, as if nothing was stored of their session; and into turns.

    Raises:
        TypeError, ValueError: a message is none, or a part of one is not as it must be; the message says which.
    """
    occurrences: Counter[str] = Counter()
    memories: list[Memory] = []
    turns: list[Turn] = []
    for place, one in _read(check_messages(messages), roles):
        own: dict[str, Any] = {"role": one.role}
        own |= {name: value for name in ("images", "files") if (value := getattr(one, name))}
        if one.calls:
            own["tool_calls"] = one.calls
        moment = "" if one.time is None else one.time.isoformat()
        content = content_digest(json.dumps([one.role, one.speaker, moment, one.text, one.images, one.files]))
        occurrences[content] += 1
        turns.append(Turn(content, occurrences[content], None if one.time is None else to_microseconds(one.time)))
        try:
            memories.append(
                Memory(
                    text=one.text,
                    id=turn_id(session, content, occurrences[content]),
                    namespace=namespace,
                    timestamp=now if one.time is None else one.time,
                    session=session,
                    speaker=one.speaker,
                    metadata={**metadata, **own},
                )
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"{place}: {error}; nothing was stored") from None
    return memories, turns


# ------------------------------------------------------------------------------------------------------ reading


def _read(messages: Iterable[Any], roles: frozenset[str]) -> list[tuple[str, _Said]]:
    """What is to be stored, each with the place that errors name."""
    said: list[tuple[str, _Said]] = []
    calls: dict[str, dict[str, Any]] = {}
    silent: list[dict[str, Any]] = []  # calls of messages without text, for the assistant's next one
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        role = _role(role_of(message, place))
        if role in _CALLS or role in _RESULTS:  # items beside messages, as OpenAI's responses have them
            parts: list[Any] = [message]
            role = "assistant" if role in _CALLS else "tool"
        else:
            parts = parts_of(message, place)
        one = _Said(role, _speaker(message, role), "", _time(message, place))
        returned: list[str] = []
        for result_id, result in _gather(one, message, parts, place):
            if (call := calls.get(result_id)) is not None:
                call.setdefault("result", result[:_LONGEST_RESULT])
            returned.append(result)
        calls.update((str(call["id"]), call) for call in one.calls if "id" in call)
        if returned and not one.text:  # what tools returned comes in a user's message without text
            one.role, one.speaker = "tool", "tool" if one.speaker == "user" else one.speaker
            one.text = visible("\n".join(returned))
        if not one.text:
            one.text = _named(one)
        if role == "assistant" and one.text:
            one.calls, silent = silent + one.calls, []
        elif role == "assistant":
            silent.extend(one.calls)
        if one.text and one.role in roles:
            said.append((place, one))
    return said


def _role(role: str) -> str:
    for names, name in ((USER, "user"), (ASSISTANT, "assistant"), (_SYSTEM, "system"), (_TOOL, "tool")):
        if role in names:
            return name
    return role


def checked_roles(roles: Iterable[str]) -> frozenset[str]:
    """Return roles in the form in which they are compared."""
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise TypeError(f"roles must be a list such as ['user', 'assistant'], got {type(roles).__name__}")
    named = list(roles)
    for role in named:
        if not isinstance(role, str) or not role.strip():
            raise ValueError(
                f"roles holds {quoted(role)}; roles are user, assistant, system, tool, or a name of your own"
            )
    return frozenset(_role(role.strip().casefold()) for role in named)


def _speaker(message: Any, role: str) -> str:
    name = MISSING if isinstance(message, str) else field_of(message, "name")
    return name.strip() if isinstance(name, str) and name.strip() else role


def _time(message: Any, place: str) -> datetime | None:
    if isinstance(message, str):
        return None
    for name in _TIMES:
        value = field_of(message, name)
        if value is not None and value is not MISSING:
            return to_datetime(value, f"the {name} of {place}")
    return None


def _gather(one: _Said, message: Any, parts: Sequence[Any], place: str) -> list[tuple[str, str]]:
    """Fill in what a message holds; return what tools returned, as (id of the call, text)."""
    texts: list[str] = []
    results: list[tuple[str, str]] = []
    for part in parts:
        kind = "" if isinstance(part, str) else field_of(part, "type")
        if kind in _CALLS:
            one.calls.append(_call(part))
        elif kind in _RESULTS:
            results.append(_result(part, place))
        elif kind in _IMAGES:
            one.images.append(_attachment(part))
        elif kind in _FILES:
            one.files.append(_attachment(part))
        else:
            texts.append(part_text(part, place))
    if not isinstance(message, str):
        listed = field_of(message, "tool_calls")
        if isinstance(listed, Iterable) and not isinstance(listed, str | bytes | Mapping):
            one.calls.extend(_call(call) for call in listed)
    text = visible("\n".join(text for text in texts if text.strip()))
    if one.role == "tool" and text:
        results.append((_first(message, "tool_call_id", "name") or "", text))
    else:
        one.text = text
    return results


def _named(one: _Said) -> str:
    """What stands for the text of a message that is nothing but images or files."""
    names = ["image"] * bool(one.images) + [str(file.get("name", "file")) for file in one.files]
    return " ".join(f"[{name}]" for name in names)


# ---------------------------------------------------------------------------------------------- tools and blobs


def _call(call: Any) -> dict[str, Any]:
    function = field_of(call, "function")
    holder = call if function is None or function is MISSING else function
    found: dict[str, Any] = {"name": _first(holder, "name") or "tool"}
    call_id = _first(call, "call_id", "id")
    if call_id:
        found["id"] = call_id
    for name in ("arguments", "args", "input"):
        value = field_of(holder, name)
        if value is not None and value is not MISSING:
            found["arguments"] = _arguments(value)
            break
    return found


def _arguments(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return _short(value)
    plain = _plain(value, 0)
    said = json.dumps(plain, ensure_ascii=False)
    return plain if len(said) <= _LONGEST_VALUE else _short(said)


def _result(part: Any, place: str) -> tuple[str, str]:
    content = next(
        (value for name in ("content", "output", "result") if (value := field_of(part, name)) not in (None, MISSING)),
        "",
    )
    if isinstance(content, str):
        text = content
    elif isinstance(content, Mapping):
        text = json.dumps(_plain(content, 0), ensure_ascii=False)
    elif isinstance(content, Iterable):
        text = "\n".join(said for item in content if (said := part_text(item, place)).strip())
    else:
        text = str(content)
    return _first(part, "tool_use_id", "call_id", "id") or "", visible(text)


def _attachment(part: Any) -> dict[str, Any]:
    """Type, name, address or digest and size of an image or a file."""
    holder = part
    for name in ("image_url", "source", "input_audio", "audio", "file", "video_url", "audio_url"):
        inner = field_of(part, name)
        if isinstance(inner, str):
            return _blob(inner, "")
        if inner is not None and inner is not MISSING:
            holder = inner
            break
    media = _first(holder, "media_type", "mime_type", "format") or ""
    found: dict[str, Any] = {}
    title = _first(holder, "filename", "name", "title") or _first(part, "filename", "name", "title")
    if title:
        found["name"] = title
    file_id = _first(holder, "file_id")
    if file_id:
        found["file_id"] = file_id
    for name in ("data", "file_data", "url", "file_url"):
        value = field_of(holder, name)
        if isinstance(value, str | bytes) and value:
            encoded = name in ("data", "file_data") and field_of(holder, "type") != "text"
            return found | _blob(value, media, encoded=encoded)
    return found | ({"type": media} if media else {})


def _blob(value: str | bytes, media: str, *, encoded: bool = False) -> dict[str, Any]:
    """What is kept of content or of an address that may hold it."""
    if isinstance(value, str) and value[:5].casefold() == "data:":
        header, _, value = value[5:].partition(",")
        media = header.split(";")[0] or media
        content = _decoded(value) if "base64" in header else unquote_to_bytes(value)
    elif isinstance(value, bytes):
        content = value
    elif encoded:
        content = _decoded(value)
    elif len(value) <= _LONGEST_VALUE and "://" in value[:32]:
        return {"url": _clean(value)} | ({"type": media} if media else {})
    else:
        content = value.encode("utf-8", "replace")
    found: dict[str, Any] = {"type": _clean(media)[:200]} if media else {}
    return found | {"sha256": sha256(content).hexdigest(), "bytes": len(content)}


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except (ValueError, binascii.Error):
        return value.encode("utf-8", "replace")


def _short(text: str) -> str | dict[str, Any]:
    """A text, or the digest and size of a long one."""
    if len(text) <= _LONGEST_VALUE:
        return _clean(text)
    return {"sha256": sha256(text.encode("utf-8", "replace")).hexdigest(), "characters": len(text)}


def _plain(value: Any, depth: int) -> Any:
    """A value that metadata may hold, whatever a model wrote into it."""
    if depth > _DEEPEST:
        return _clean(repr(value)[:200])
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinity are no JSON
    if isinstance(value, Mapping):
        return {_clean(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return _clean(repr(value)[:200])


def _first(holder: Any, *names: str) -> str | None:
    """The first of some fields that is text with something in it."""
    if isinstance(holder, str):
        return None
    for name in names:
        value = field_of(holder, name)
        if isinstance(value, str) and value:
            return _clean(value)[:512]
    return None


def _clean(text: str) -> str:
    """A text without what metadata cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
