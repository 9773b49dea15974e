"""How closely the mover has to watch for notifications: while an offer is young, or while pages move."""

from kvtransfer.actions import Action, Pace
from kvtransfer.roster import FetchLinks

YOUNG = 0.05
"""Seconds for which an offer is watched closely: most rooms are over by then."""


class Pacing:
    """The receivers for which a Completion may come at any moment."""

    def __init__(self, actions: list[Action | FetchLinks]) -> None:
        self.busy = False
        self._actions = actions
        self._offered: set[int] = set()
        self._moving: set[int] = set()
        self._young_until = 0.0

    def offered(self, room: int, now: float) -> None:
        """A receiver has named its pages."""
        self._offered.add(room)
        self._young_until = now + YOUNG

    def moving(self, room: int) -> None:
        """Pages are on their way to a receiver."""
        self._moving.add(room)

    def over(self, room: int) -> None:
        """No notification is awaited for a room any more."""
        self._offered.discard(room)
        self._moving.discard(room)

    def update(self, now: float) -> None:
        """Tells the mover when that changes."""
        busy = bool(self._moving) or (bool(self._offered) and now < self._young_until)
        if busy != self.busy:
            self.busy = busy
            self._actions.append(Pace(busy))
