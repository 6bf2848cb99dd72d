"""The tables of a ledger, and how those of an earlier format become these."""

from __future__ import annotations

from typing import Final

from jiyi import distilled, generations, originals
from jiyi.files import checkpoints

#: Format of the SQLite file. A store says its own in the manifest.
FORMAT_VERSION: Final = "3"

_USAGE: Final = """
-- How memories were used: few were, and it changes without writing them again. seq: the change that set it.
CREATE TABLE usage (
    key INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    last_used_us INTEGER,
    successes INTEGER NOT NULL,
    failures INTEGER NOT NULL
);
CREATE INDEX usage_by_seq ON usage (seq);
-- Facts by what they are about: most memories are none.
CREATE INDEX facts_by_subject ON memories (namespace, subject) WHERE subject IS NOT NULL;
"""
_SINCE_2: Final = _USAGE + originals.TABLE + distilled.TABLES
_SINCE_3: Final = generations.TABLES + checkpoints.TABLE

SCHEMA: Final = (
    """
BEGIN IMMEDIATE;
CREATE TABLE manifest (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE namespaces (namespace INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
-- key = namespace << 40 | label, here and in columns
CREATE TABLE memories (
    key INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    timestamp_us INTEGER NOT NULL,
    expires_us INTEGER,
    session TEXT,
    speaker TEXT,
    metadata TEXT,
    sources TEXT,
    checksum INTEGER NOT NULL,
    text TEXT NOT NULL,
    subject TEXT,
    predicate TEXT,
    object TEXT,
    multivalued INTEGER,
    title TEXT,
    steps TEXT,
    use_when TEXT
);
CREATE UNIQUE INDEX memories_by_id ON memories (namespace, id);
"""
    + generations.COLUMNS.format(table="columns")
    + """-- What left, and when: how a reader, or an index saved earlier, catches up.
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY, key INTEGER NOT NULL);
"""
    + _SINCE_2
    + _SINCE_3
    + """
INSERT INTO manifest VALUES ('format', '{format}'), ('store', '{store}'), ('sequence', 0);
COMMIT;
"""
)

_SINCE_1: Final = "".join(
    f"ALTER TABLE memories ADD COLUMN {column};\n"
    for column in (
        "subject TEXT",
        "predicate TEXT",
        "object TEXT",
        "multivalued INTEGER",
        "title TEXT",
        "steps TEXT",
        "use_when TEXT",
    )
)

#: By format: what makes the next one of it, as one transaction.
UPGRADES: Final = {
    "1": f"""
BEGIN IMMEDIATE;
{_SINCE_1}
ALTER TABLE columns ADD COLUMN fact INTEGER NOT NULL DEFAULT 0;
{_SINCE_2}
UPDATE manifest SET value = '2' WHERE key = 'format';
COMMIT;
""",
    # What a reindex had staged is not worth carrying over: it begins anew.
    "2": f"""
BEGIN IMMEDIATE;
{_SINCE_3}
DROP TABLE IF EXISTS staged;
DELETE FROM manifest WHERE key = 'staged';
UPDATE manifest SET value = '3' WHERE key = 'format';
COMMIT;
""",
}
