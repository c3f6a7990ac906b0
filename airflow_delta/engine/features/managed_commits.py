"""Managed commits: rules about the commit owner of a table.

The feature ``managedCommit`` and the property ``delta.managedCommit.commitOwner`` must be added and removed
together. A table with only one of them is invalid, because it is unclear who makes its next commit. A
managed table has in-commit timestamps, because a commit may reach the log long after it was made.

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
"""The feature that managed commits require. It may be removed together with them."""

OWNER = "delta.managedCommit.commitOwner"
"""The property that names the commit owner."""

TABLE_ID = "tableId"
"""The key of the table's unique id, which the engine adds to the owner's configuration."""

_CONF = "delta.managedCommit.commitOwnerConf"
_TIMESTAMPS = "delta.enableInCommitTimestamps"
# Matched with names in lower case, without the characters between words.
_SECRET_NAMES = re.compile(
    r"passw|passphrase|pwd|secret|token|credential"
    r"|^(key|pass|sas)$|(access|account|api|auth|encryption|master|private|shared|signing|storage)key"
)
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
_PASSWORD_IN_URL = re.compile(r"://[^/?#\s]*:[^/?#\s]+@")
_SUCCESSOR = "coordinatedCommits-preview"


def commit_owner(supported: frozenset[str], properties: TableProperties) -> str | None:
    """The name of the table's commit owner; None if the file system manages the table.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.

    Raises:
        InvalidTableError: the table has the feature without the property, or the property without the
            feature.
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
        f"{found}; they are only valid together, so one commit must add or remove both. The engine doesn't "
        "write a table in this state, because it is unclear who makes its next commit: add what is "
        "missing or remove what is left, with the engine that left the table so; or restore its directory",
        table=properties.table,
    )


def unseen_commits(supported: frozenset[str], properties: TableProperties) -> str | None:
    """Why the log directory may lack the newest commits of a table; None if it has them all.

    A commit owner ratifies commits before they are backfilled into the log directory.

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
    """Check that the configuration for an owner is a mapping of texts to texts, or None.

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
    """Add the properties that request a commit owner for a new table.

    Args:
        properties: the other requested properties.
        owner: the owner's name.
        conf: the owner's configuration for the table; may be None.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: an argument has the wrong type; there is a configuration without an owner; or
            the properties name an owner too.
    """
    check_mapping("properties", properties, "a mapping of names to texts, or None", table=table)
    check_text("owner", owner, optional=True, table=table)
    check_conf(conf, table=table)
    if owner is None:
        raise InvalidArgumentError(
            "conf is given without a commit owner: pass its name as owner", table=table
        )
    if twice := sorted({OWNER, _CONF} & properties.keys()):
        raise InvalidArgumentError(
            f"the commit owner is named by owner={owner!r} and by the properties {', '.join(twice)}: "
            "omit the properties",
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
    """The properties of a table after it is given to a commit owner.

    Args:
        configuration: the properties before.
        owner: the owner's name.
        conf: the owner's configuration for the table, without the table's id and without secrets. All
            readers of the table can read it, in the history even for ever. So names that sound like a
            secret are refused (``password``, ``clientSecret``, ``api_key``, and names that contain
            ``token`` or ``credential``), and so are URLs with a password.
        table_id: the table's unique id.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the name is empty; or the configuration contains an id or something that looks
            like a secret. Facts, for a secret: option.
    """
    if not owner:
        raise InvalidArgumentError("a commit owner has a name: found an empty text", table=table)
    if TABLE_ID in conf:
        raise InvalidArgumentError(
            f"the configuration of the commit owner contains {TABLE_ID}={conf[TABLE_ID]!r}: omit it, "
            "because the engine assigns a new one to each table",
            table=table,
        )
    _check_no_secret(conf, table)
    text = json.dumps({**conf, TABLE_ID: table_id}, separators=(",", ":"))
    return {**configuration, _TIMESTAMPS: "true", OWNER: owner, _CONF: text}


def _check_no_secret(conf: Mapping[str, str], table: str) -> None:
    for name, value in conf.items():
        named = _SECRET_NAMES.search(_BETWEEN_WORDS.sub("", name.lower()))
        if named or _PASSWORD_IN_URL.search(str(value)):
            why = "is named like a secret" if named else "is a URL with a password"
            raise InvalidArgumentError(
                f"{name!r} in the configuration of the commit owner {why}, and all readers of the table "
                "can read it: omit it, and let the owner read it from an Airflow connection or the "
                "environment; if it is no secret, give it another name",
                table=table,
                option=name,
            )


def remove_owner(
    configuration: Mapping[str, str], *, keep_in_commit_timestamps: bool = True
) -> dict[str, str]:
    """The properties of a table after it is taken back from its commit owner.

    Args:
        configuration: the properties before.
        keep_in_commit_timestamps: whether in-commit timestamps stay on.
    """
    removed = {OWNER, _CONF, *(() if keep_in_commit_timestamps else (_TIMESTAMPS,))}
    return {name: value for name, value in configuration.items() if name not in removed}


def check_timestamps(
    supported: frozenset[str], properties: TableProperties, *, before: frozenset[str]
) -> None:
    """Check that a managed table has in-commit timestamps, and that no commit removes their feature alone.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.
        before: the features that it supported before.

    Raises:
        InvalidTableError: the table has the feature ``managedCommit`` without in-commit timestamps; or it
            loses their feature, but keeps the property that turns them on.
    """
    if TIMESTAMPS_FEATURE in before - supported and properties.in_commit_timestamps_enabled:
        raise InvalidTableError(
            f"the protocol would lose the feature {TIMESTAMPS_FEATURE}, but {_TIMESTAMPS} would stay "
            "'true': remove both",
            table=properties.table,
        )
    if FEATURE in supported and not properties.in_commit_timestamps_enabled:
        raise InvalidTableError(
            f"the table has the feature {FEATURE}, but {_TIMESTAMPS} is "
            f"{properties.raw.get(_TIMESTAMPS)!r}: expected 'true', because the modification times of its "
            "commit files aren't the commit times",
            table=properties.table,
        )


def check_ownership(before: TableProperties, after: TableProperties) -> None:
    """Check that a commit keeps the commit owner and its configuration, adds an owner, or removes it.

    Args:
        before: the properties before the commit; empty for a new table.
        after: the properties after the commit.

    Raises:
        InvalidTableError: the commit changes the owner or its configuration, or leaves a configuration
            without an owner.
    """
    old, new = before.commit_owner, after.commit_owner
    if old is None and new is not None:
        return
    if old is not None and new not in (None, old):
        problem = (
            f"the commit owner would change from {old!r} to {new!r}: first take the table back with "
            "DeltaTable.convert_to_file_system"
        )
    elif _CONF in after.raw and new is None and _CONF not in before.raw:
        problem = f"{_CONF} would be set without {OWNER}: omit it"
    elif old is not None and new is None and _CONF in after.raw:
        problem = f"{_CONF} would stay without {OWNER}: remove both"
    elif new is not None and before.commit_owner_conf != after.commit_owner_conf:
        problem = (
            f"{_CONF} would change, but the commit owner {new!r} finds its table by it: keep it, or take "
            "the table back and convert it again"
        )
    else:
        return
    raise InvalidTableError(problem, table=after.table, property=_CONF)
