"""How rank 0's scheduler has every rank of its engine carry out the same commands in the same order."""

from typing import Any

from .rank import Rank


def command(rank: Rank, name: str, **arguments: Any) -> Any:
    """On rank 0: have all ranks call `rank.name(**arguments)`; gives what this one's call returned."""
    rank.group.share([name, arguments])
    return getattr(rank, name)(**arguments)


def follow(rank: Rank) -> None:
    """On the other ranks: do as rank 0 does, until it has said `stop`. Blocks while it says nothing."""
    name = ""
    while name != "stop":
        name, arguments = rank.group.share(None)
        getattr(rank, name)(**arguments)
