"""Storage: all of the engine's access to files. It knows nothing of Delta.

`base` has the contract, and `location` opens the storage for a path or URI. `local`, `memory` and
`object_store` (with `s3`, `gcs` and `azure`) implement the whole contract. `generic` reads from any other
store that fsspec supports; `generic_writer` also writes there, if the user says that there is one writer
(`single_writer`).
"""

from __future__ import annotations

__all__: list[str] = []
