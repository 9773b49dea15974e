"""What a worker counts."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """What was dropped or is unusual; for tests and metrics."""

    foreign_notifications: int = 0
    foreign_completions: int = 0
    orphan_cleanups: int = 0
    moved_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes written, by receiver's instance, warm-up not counted."""
