"""Managed commits: who owns the commits of a table, and how that changes.

Spec: managed-commits.md, "Managed Commit Enablement" and "Writer Requirements for Managed Commits". The
feature ``managedCommit`` and the property ``delta.managedCommit.commitOwner`` come and go together: a
table with one and without the other is invalid, as nobody could say where its next commit belongs. While
they are there in-commit timestamps are on, since a commit may come to the log long after it was made.

One commit gives a table to an owner, and one commit takes it back. `assign_owner` and `remove_owner`
compute the table properties that these commits write. `check_ownership` refuses all other changes: an owner
can't hand a table to another one, and its configuration, by which it finds its table, can't change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.arguments import check_mapping, check_text
from airflow_delta.engine.model.properties import TableProperties

__all__ = [
    "FEATURE",
    "OWNER",
    "TABLE_ID",
    "TIMESTAMPS_FEATURE",
    "assign_owner",
    "check_conf",
    "check_ownership",
    "check_timestamps",
    "commit_owner",
    "remove_owner",
    "request_owner",
    "unseen_commits",
]

FEATURE = "managedCommit"
"""The feature's name."""

TIMESTAMPS_FEATURE = "inCommitTimestamp"
"""The feature that comes with it, and may go with it."""

OWNER = "delta.managedCommit.commitOwner"
"""The property that names the commit owner."""

TABLE_ID = "tableId"
"""What the engine adds to an owner's configuration: a text that no other table has."""

_CONF = "delta.managedCommit.commitOwnerConf"
_TIMESTAMPS = "delta.enableInCommitTimestamps"
# Parts of names, without regard to case and to what stands between words.
_SECRET_NAMES = re.compile(
    r"passw|passphrase|pwd|secret|token|credential"
    r"|^(key|pass|sas)$|(access|account|api|auth|encryption|master|private|shared|signing|storage)key"
)
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
_PASSWORD_IN_URL = re.compile(r"://[^/?#\s]*:[^/?#\s]+@")
_SUCCESSOR = "coordinatedCommits-preview"


def commit_owner(supported: frozenset[str], properties: TableProperties) -> str | None:
    """The name of the table's commit owner; None for a table that the file system manages.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.

    Raises:
        InvalidTableError: the feature is there without the property, or the other way round.
    """
    owner = properties.commit_owner
    if (FEATURE in supported) == (owner is not None):
        return owner
    found = (
        f"the protocol lists the feature {FEATURE}, but the property {OWNER} is missing"
        if owner is None
        else f"the property {OWNER} is {owner!r}, but the protocol lacks the feature {FEATURE}"
    )
    raise InvalidTableError(
        f"{found}; they are only valid together, so one commit must add or remove both. A table "
        "that is so already isn't written, as nobody can say where its next commit belongs: have the "
        "engine that left it so add what is missing or remove what is left, or put its directory back to "
        "how it was before",
        table=properties.table,
    )


def unseen_commits(supported: frozenset[str], properties: TableProperties) -> str | None:
    """Why the log directory may lack the newest commits of a table; None where it holds them all.

    A commit owner ratifies commits before they are backfilled to where everybody looks.

    Raises:
        InvalidTableError: as `commit_owner`.
    """
    owner = commit_owner(supported, properties)
    if owner is not None:
        return f"its commit owner {owner!r} may have ratified commits that aren't backfilled yet"
    if _SUCCESSOR in supported:
        return (
            f"it supports {_SUCCESSOR}: its coordinator may know of commits that aren't backfilled"
        )
    return None


def check_conf(conf: Mapping[str, str] | None, *, table: str) -> None:
    """Make sure that the configuration for an owner is a mapping of texts to texts, or None.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if conf is None:
        return
    check_mapping("conf", conf, "a mapping of names to texts, or None", table=table)
    for name, value in conf.items():
        check_text(f"conf[{name!r}]", value, table=table)


def request_owner(
    properties: Mapping[str, str], owner: str | None, conf: Mapping[str, str] | None, *, table: str
) -> dict[str, str]:
    """The properties that ask for a commit owner, for a new table.

    Args:
        properties: the other properties that are asked for.
        owner: the owner's name.
        conf: what the owner is to know of the table; None for nothing.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: an argument isn't of the type above, there is a configuration and no owner, or
            the properties say who the owner is, too.
    """
    check_mapping("properties", properties, "a mapping of names to texts, or None", table=table)
    check_text("owner", owner, optional=True, table=table)
    check_conf(conf, table=table)
    if owner is None:
        raise InvalidArgumentError(
            "there is a configuration (conf) and no commit owner: name it, as owner", table=table
        )
    if twice := sorted({OWNER, _CONF} & properties.keys()):
        raise InvalidArgumentError(
            f"the commit owner is named by owner={owner!r} and by the properties {', '.join(twice)}: "
            "leave the properties out",
            table=table,
        )
    if not owner:
        raise InvalidArgumentError("a commit owner has a name: found an empty text", table=table)
    return {**properties, OWNER: owner, _CONF: json.dumps(dict(conf or {}))}


def assign_owner(
    configuration: Mapping[str, str],
    owner: str,
    conf: Mapping[str, str],
    *,
    table_id: str,
    table: str,
) -> dict[str, str]:
    """The properties of a table that is given to a commit owner.

    Args:
        configuration: the properties that it has.
        owner: the owner's name.
        conf: what the owner is to know of the table, without its id and without secrets: everybody who
            may read the table may read it, for ever, in the history. Names that sound like one (such as
            ``password``, ``clientSecret``, ``api_key``, and any with ``token`` or ``credential`` in it)
            and URLs with a password are refused, whatever they are meant for.
        table_id: the table's id, which no other table has.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the name is empty, or the configuration brings an id or what looks like a
            secret. Facts, of a secret: option.
    """
    if not owner:
        raise InvalidArgumentError("a commit owner has a name: found an empty text", table=table)
    if TABLE_ID in conf:
        raise InvalidArgumentError(
            f"the configuration of the commit owner brings {TABLE_ID}={conf[TABLE_ID]!r}: leave it out, "
            "for each table gets a new one, so that no two are taken for the same",
            table=table,
        )
    _check_no_secret(conf, table)
    told = json.dumps({**conf, TABLE_ID: table_id}, separators=(",", ":"))
    return {**configuration, _TIMESTAMPS: "true", OWNER: owner, _CONF: told}


def _check_no_secret(conf: Mapping[str, str], table: str) -> None:
    for name, value in conf.items():
        named = _SECRET_NAMES.search(_BETWEEN_WORDS.sub("", name.lower()))
        if named or _PASSWORD_IN_URL.search(str(value)):
            why = "is named like a secret" if named else "is a URL with a password"
            raise InvalidArgumentError(
                f"{name!r} in the configuration of the commit owner {why}, and everybody who may read the "
                "table may read it: leave it out, and let the owner have it from an Airflow connection or "
                "the environment; if it is no secret, give it another name",
                table=table,
                option=name,
            )


def remove_owner(
    configuration: Mapping[str, str], *, keep_in_commit_timestamps: bool = True
) -> dict[str, str]:
    """The properties of a table that is taken back from its commit owner.

    Args:
        configuration: the properties that it has.
        keep_in_commit_timestamps: leave in-commit timestamps on.
    """
    removed = {OWNER, _CONF, *(() if keep_in_commit_timestamps else (_TIMESTAMPS,))}
    return {name: value for name, value in configuration.items() if name not in removed}


def check_timestamps(
    supported: frozenset[str], properties: TableProperties, *, before: frozenset[str]
) -> None:
    """Make sure that a table that has an owner has in-commit timestamps, and that they go as a whole.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.
        before: the features that it supported before.

    Raises:
        InvalidTableError: it has the feature ``managedCommit``, and in-commit timestamps aren't on; or
            their feature goes, and the property that turns them on doesn't.
    """
    if TIMESTAMPS_FEATURE in before - supported and properties.in_commit_timestamps_enabled:
        raise InvalidTableError(
            f"the protocol would lose the feature {TIMESTAMPS_FEATURE}, and {_TIMESTAMPS} stay 'true': "
            "remove both",
            table=properties.table,
        )
    if FEATURE in supported and not properties.in_commit_timestamps_enabled:
        raise InvalidTableError(
            f"the table has the feature {FEATURE}, and {_TIMESTAMPS} is "
            f"{properties.raw.get(_TIMESTAMPS)!r}: expected 'true', because the files of its commits don't "
            "tell their times",
            table=properties.table,
        )


def check_ownership(before: TableProperties, after: TableProperties) -> None:
    """Make sure that a commit leaves the ownership of a table as it is, begins it, or ends it.

    Args:
        before: the properties before it; of a new table none.
        after: the properties after it.

    Raises:
        InvalidTableError: it changes the owner or its configuration, or leaves a configuration without an
            owner.
    """
    old, new = before.commit_owner, after.commit_owner
    if old is None and new is not None:
        return
    if old is not None and new not in (None, old):
        problem = (
            f"the commit owner would change from {old!r} to {new!r}: take the table back from the one, by "
            "DeltaTable.convert_to_file_system, before it is given to the other"
        )
    elif _CONF in after.raw and new is None and _CONF not in before.raw:
        problem = f"{_CONF} would be there without {OWNER}, and so be nobody's: leave it out"
    elif old is not None and new is None and _CONF in after.raw:
        problem = f"{_CONF} would stay while {OWNER} goes: remove both"
    elif new is not None and before.commit_owner_conf != after.commit_owner_conf:
        problem = (
            f"{_CONF} would change, by which the commit owner {new!r} finds its table: leave it as it is, "
            "or take the table back and give it anew"
        )
    else:
        return
    raise InvalidTableError(problem, table=after.table, property=_CONF)
