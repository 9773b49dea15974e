"""How closely the mover has to watch for notifications.

Each look takes the interpreter's lock from the engine's thread: while no room is open there are to be few.
"""

from kvtransfer.actions import Action, Pace
from kvtransfer.roster import FetchLinks

CLOSELY = 50e-6
"""Seconds between two looks while pages move, or an offer is young. Without a pause the mover would hold the
interpreter's lock just when the thread that sends the offer needs it: 0.7 ms from an offer to its message then, 0.15 ms
so (on 2 cores)."""
OFTEN = 0.015
"""The same while an offer waits: a Completion may come before the service tells that pages move."""
SELDOM = 0.1
"""The same otherwise: a peer that says Hello waits so long."""
YOUNG = 0.05
"""Seconds for which an offer is watched closely: most rooms are over by then."""


class Pacing:
    """The receivers for which a Completion may come at any moment."""

    def __init__(self, actions: list[Action | FetchLinks]) -> None:
        self._pause = SELDOM
        self._actions = actions
        self._offered: set[int] = set()
        self._moving: set[int] = set()
        self._young_until = 0.0

    @property
    def busy(self) -> bool:
        """A Completion is about to come."""
        return self._pause == CLOSELY

    def offered(self, room: int, now: float) -> None:
        """A receiver has named its pages."""
        self._offered.add(room)
        self._young_until = now + YOUNG

    def moving(self, room: int) -> None:
        """Pages are on their way to a receiver."""
        self._moving.add(room)

    def failed(self, room: int) -> None:
        """No Completion will come, but bytes may: the mover keeps reading until the pages go back."""
        self._moving.discard(room)

    def over(self, room: int) -> None:
        """Nothing is awaited for a room any more."""
        self._offered.discard(room)
        self._moving.discard(room)

    def update(self, now: float) -> None:
        """Tells the mover when that changes."""
        pause = OFTEN if self._offered else SELDOM
        if self._moving or (self._offered and now < self._young_until):
            pause = CLOSELY
        if pause != self._pause:
            self._pause = pause
            self._actions.append(Pace(pause))
