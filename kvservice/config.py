"""Every setting of the service: its default, its unit, its flag and its environment variable, in one place."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvservice.domain.policy import Policy
from kvservice.domain.types import Timeouts

LOG_LEVELS = ("debug", "info", "warning", "error")

_POLICY = Policy()


def _setting(default: Any, unit: str, text: str, least: float = 0, most: float = float("inf")) -> Any:
    return field(default=default, metadata={"unit": unit, "help": text, "least": least, "most": most})


def _seconds(default: float, text: str, least: float = 0.0) -> Any:
    return _setting(float(default), "s", text, least, 86400 * 366)


def _count(default: int, unit: str, text: str, least: int = 1, most: int = 2**31 - 1) -> Any:
    return _setting(default, unit, text, least, most)


@dataclass(frozen=True, slots=True)
class Config:
    """Durations in seconds, limits in the unit named. The defaults of the domain's are Policy's."""

    host: str = _setting("127.0.0.1", "address", "address to listen on; anything but loopback lets others in")
    port: int = _count(50051, "port", "port to listen on; 0 takes a free one and says which", 0, 65535)
    log_level: str = _setting("info", "level", f"least level that is logged: {', '.join(LOG_LEVELS)}")
    drain_grace: float = _seconds(10, "time that open rooms get to end when the service is told to stop")
    max_watches: int = _count(1024, "streams", "Watch streams open at once")

    bootstrapping_timeout: float = _seconds(
        _POLICY.timeouts.bootstrapping, "time for all workers of a room to join, from its opening", 0.001
    )
    input_timeout: float = _seconds(
        _POLICY.timeouts.waiting_for_input, "time for a room's first page to be sent, once all have joined", 0.001
    )
    no_progress_timeout: float = _seconds(
        _POLICY.timeouts.no_progress, "time between two signs of progress while a room is transferring", 0.001
    )
    room_timeout: float = _seconds(_POLICY.timeouts.total, "time for a room to end, from its opening", 0.001)
    vote: float = _seconds(_POLICY.vote, "time for receivers to answer when their room is asked to end")
    reconnect_grace: float = _seconds(
        _POLICY.reconnect_grace, "time for a worker to come back after its session broke, before its rooms are ended"
    )
    lease_ttl: float = _seconds(_POLICY.lease_ttl, "lease of a worker that asks for none", 1)
    max_lease_ttl: float = _seconds(_POLICY.max_lease_ttl, "longest lease that is granted", 1)
    retention: float = _seconds(
        _POLICY.retention, "time that an ended and cleaned-up room is remembered; longer than any client retries"
    )
    max_engines: int = _count(_POLICY.max_engines, "engines", "engines registered at once")
    max_workers: int = _count(_POLICY.max_workers, "workers", "workers registered at once")
    max_open_rooms: int = _count(_POLICY.max_open_rooms, "rooms", "rooms open at once")
    max_closed_rooms: int = _count(
        _POLICY.max_closed_rooms,
        "rooms",
        "ended rooms remembered at once; half of them may be unopened ones that were aborted",
    )
    max_room_indices: int = _count(_POLICY.max_room_indices, "indices", "page indices of a room, over all its groups")
    max_metadata_bytes: int = _count(_POLICY.max_metadata_bytes, "bytes", "NIXL metadata of a worker", 1, 128 * 1024)

    def policy(self) -> Policy:
        """What the domain obeys."""
        shared = {item.name for item in dataclasses.fields(Policy)} & {item.name for item in dataclasses.fields(Config)}
        timeouts = Timeouts(self.bootstrapping_timeout, self.input_timeout, self.no_progress_timeout, self.room_timeout)
        return Policy(timeouts=timeouts, **{name: getattr(self, name) for name in shared})


def parse(arguments: Sequence[str], environment: Mapping[str, str], version: str) -> Config:
    """Flags win over KVSERVICE_* variables, and these over the defaults.

    Exits with status 2 and a sentence that names flag (or variable) and value if one is bad.
    """
    parser = argparse.ArgumentParser(
        prog="kvservice",
        description="The KVTransfer service: a control plane for moving KV caches between engines.",
        epilog="Each flag has an environment variable, such as KVSERVICE_MAX_OPEN_ROOMS for --max-open-rooms; "
        "a flag wins over its variable.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvservice {version}")
    for item in dataclasses.fields(Config):
        unit, text = item.metadata["unit"], item.metadata["help"]
        parser.add_argument(
            _flag(item.name),
            metavar=unit.upper(),
            help=f"{text} [{unit}; default {item.default:g}]"
            if isinstance(item.default, float)
            else f"{text} [{unit}; default {item.default}]",
        )
    given = {name: text for name, text in vars(parser.parse_args(arguments)).items() if text is not None}
    values: dict[str, Any] = {}
    for item in dataclasses.fields(Config):
        variable = "KVSERVICE_" + item.name.upper()
        for source, text in ((_flag(item.name), given.get(item.name)), (variable, environment.get(variable))):
            if text is not None:
                try:
                    values[item.name] = _value(item, text)
                except ValueError as error:
                    parser.error(f"{source}: {error}, got {text!r}")
                break
    config = Config(**values)
    if config.lease_ttl > config.max_lease_ttl:
        parser.error(
            f"--lease-ttl: must be at most --max-lease-ttl ({config.max_lease_ttl:g}), got {config.lease_ttl:g}"
        )
    return config


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value(item: Any, text: str) -> Any:
    if item.name == "log_level":
        if text not in LOG_LEVELS:
            raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}")
        return text
    if isinstance(item.default, str):
        if not text:
            raise ValueError("must not be empty")
        return text
    kind: type[int] | type[float] = type(item.default)
    least, most = item.metadata["least"], item.metadata["most"]
    problem = f"must be {'a whole' if kind is int else 'a'} number from {least:g} to {most:.15g}"
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(problem) from None
    if not least <= value <= most:
        raise ValueError(problem)
    return value
