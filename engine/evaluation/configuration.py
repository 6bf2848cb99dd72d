"""What is measured: settings of a search with a name, from a preset, from a file, or from another one and changes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from jiyi.config import DEFAULT, PRESETS, SearchConfig, preset_named
from jiyi.quoted import quoted

#: Endings of a file of settings.
FILES: Final = (".json", ".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings to measure.

    Attributes:
        name: how results call it.
        config: the settings.
        preset: what the store is made for, see `jiyi.open`: "balanced" and "best" take a transformer's vectors.
        budget_ms: see `Engine.search`.
    """

    name: str
    config: SearchConfig = DEFAULT
    preset: str | None = None
    budget_ms: float | None = None

    def changed(self, name: str, settings: Mapping[str, Any]) -> Configuration:
        """Return one of another name with some settings changed.

        Raises:
            TypeError, ValueError: there is no such setting, or a value is not allowed.
        """
        settings = dict(settings)
        budget_ms = settings.pop("budget_ms", self.budget_ms)
        config = self.config.with_overrides(settings)
        return replace(self, name=name, config=config, budget_ms=budget_ms)


def configured(
    *, name: str | None = None, preset: str | None = None, config: SearchConfig | None = None, **settings: Any
) -> Configuration:
    """Return a configuration.

    Args:
        name: that of the preset, when left out ("fast" without one).
        preset, config: where it starts; one of them, or neither for the default settings.
        **settings: changes to it: any of `SearchConfig`, and budget_ms.

    Raises:
        TypeError, ValueError: there is no such preset or setting, or a value is not allowed.
    """
    if preset is not None and config is not None:
        raise ValueError("give a preset or a config, not both; single settings can be added to either")
    base = preset_named(preset) if preset is not None else DEFAULT if config is None else config
    started = Configuration(name=name or preset or ("fast" if config is None else "config"), config=base, preset=preset)
    return started.changed(started.name, settings)


def read_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Read settings from a file, named like the file.

    It holds an object (JSON) or top-level keys (TOML): any settings of `SearchConfig`, budget_ms, and "preset", from
    which they start.

    Raises:
        ValueError, TypeError: it is not JSON or TOML, or a setting does not exist or has a value that is not allowed.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if path.suffix.lower() not in FILES:
        raise ValueError(f"{str(path)[:200]!r} must end in {' or '.join(FILES)}, which says how it is to be read")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
        settings = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = path.suffix[1:].upper()
        raise ValueError(f"{path} is not {kind} ({error}); it holds settings such as recency_weight") from None
    if not isinstance(settings, dict):
        raise ValueError(f"{path} must hold an object of settings, got {type(settings).__name__}")
    reserved = sorted({"name", "config"} & settings.keys())
    if reserved:
        raise ValueError(f"{path}: {reserved[0]!r} is no setting; see SearchConfig, and preset and budget_ms")
    try:
        return configured(name=path.stem, **settings)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None


def preset_or_file(given: str) -> Configuration:
    """Return what a name stands for: a preset, or a file of settings.

    Raises:
        ValueError, TypeError: it is neither; see `read_configuration`.
        FileNotFoundError: there is no such file.
    """
    if given in PRESETS:
        return configured(preset=given)
    if Path(given).suffix.lower() in FILES:
        return read_configuration(given)
    raise ValueError(
        f"unknown preset {quoted(given)}; presets are {', '.join(PRESETS)}; a file of settings ends in .json or .toml"
    )
