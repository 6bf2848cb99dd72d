"""The tables of a ledger, and how those of an earlier format become these."""

from __future__ import annotations

from typing import Final

from jiyi import distilled, originals

#: Format of the SQLite file. A store says its own in the manifest.
FORMAT_VERSION: Final = "2"

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
CREATE TABLE columns (
    key INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    timestamp_us INTEGER NOT NULL,
    expires_us INTEGER,
    session INTEGER NOT NULL,  -- hash of its name, 0 for none
    fact INTEGER NOT NULL DEFAULT 0,  -- hash of what facts that supersede each other share, 0 for none
    terms BLOB NOT NULL,
    freqs BLOB NOT NULL,
    tokens BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    vector BLOB  -- last: the others are read without it
);
-- What left, and when: how a reader, or an index saved earlier, catches up.
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY, key INTEGER NOT NULL);
"""
    + _SINCE_2
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
}
