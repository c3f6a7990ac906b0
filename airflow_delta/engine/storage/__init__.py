"""The engine's only way to bytes: one contract, and a module per kind of store.

`base` states the contract in words and types; `location` finds the store that a path or URI names.
`local`, `memory` and `object_store` (with `s3`, `gcs` and `azure`) keep the whole contract;
`generic` reads from every other store that fsspec knows, and `generic_writer` writes to it for a user
who says that there is one writer (`single_writer`). Nothing here knows what Delta is.
"""

from __future__ import annotations

__all__: list[str] = []
