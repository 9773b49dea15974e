"""How long a worker waits with what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations in seconds."""

    fence_margin: float = 2.0
    """So long before its lease ends a worker stops to post; or a third of the lease, if that is less."""
    settle: float = 1.0
