"""How a negative control spoils a transfer."""

from collections.abc import Sequence

from kvtransfer.connection import Connection

from .damage import Damage
from .evidence import Evidence, digest
from .kv_pool import KVPool, restore_canary


def disable_mover() -> None:
    """Have this process's mover say that writes are done and write nothing."""

    def pretend(connection: Connection, handle: object) -> bool:
        return True

    Connection.post = pretend  # type: ignore[method-assign, assignment] # that is the damage


def offered(damage: Damage | None, pages: Sequence[int]) -> list[int]:
    """The pages to offer in place of `pages`."""
    return list(reversed(pages)) if damage is Damage.REVERSE_PAGES else list(pages)


def strike(damage: Damage | None, room: int, pool: KVPool, pages: Sequence[int], evidence: Evidence) -> None:
    """Spoil the pages that a room's transfer has filled."""
    if damage is Damage.SKIP_LAST_VALUE_PAGE:
        page = pool.v[-1][pages[-1]]
        before = digest(page)
        restore_canary(page)
        evidence.damaged(room, pages[-1], changed=digest(page) != before)
    elif damage is Damage.REVERSE_PAGES:
        whole = [digest(pool.v[-1][page]) for page in pages]
        evidence.damaged(room, pages[0], changed=whole != whole[::-1])
