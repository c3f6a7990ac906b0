"""What is done to tables; importing the modules enters it into `world.MUTATIONS`."""

from tests.attacks.fuzz.mutations import (
    bombs,
    bytes_,
    history,
    links,
    names,
    nested,
    values,
)

__all__ = ["bombs", "bytes_", "history", "links", "names", "nested", "values"]
