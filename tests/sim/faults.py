"""What strikes from outside: processes killed, stopped, leaving; streams that break or stall."""

from collections.abc import Callable

from kvtransfer.polls import KVPoll
from kvtransfer.sending import SenderRoom

from .cluster import Cluster
from .config import Config
from .process import Held, Process, Seat
from .traffic import Traffic
from .world import World

CLOSE_TIMEOUT = 3.0


class Faults:
    """Each kind strikes again and again until all is calm."""

    def __init__(self, world: World, config: Config, cluster: Cluster, traffic: Traffic) -> None:
        self._world = world
        self._cluster = cluster
        self._traffic = traffic
        self._faults = config.faults
        self._over = False
        cluster.fabric.posting = self._strike_while_posting
        kinds: dict[str, tuple[float, Callable[[Process], None]]] = {
            "deaths": (5.0, self._kill),
            "leaving": (9.0, self._leave),
            "pauses": (2.5, self._stop),
            "breaks": (0.8, self._break),
        }
        for fault, (every, strike) in kinds.items():
            if fault in config.faults:
                world.after(world.between(0.0, 2 * every), self._again, every, strike)

    def _again(self, every: float, strike: Callable[[Process], None]) -> None:
        if self._world.calm:
            return
        processes = list(self._cluster.running.values())
        if processes:
            strike(self._world.chance.choice(processes))
        self._world.after(self._world.between(0.0, 2 * every), self._again, every, strike)

    def _kill(self, process: Process) -> None:
        world = self._world
        if world.odds(0.15):
            world.seen["mover died"] += 1
            process.after("mover", 0.0, process.mover.die, "bug")
            world.after(1.0, self._kill_if_alive, process)
        elif world.odds(0.2):
            # Its host is out of reach, or it hangs: another process takes the rank, and the old one goes on.
            world.seen["replaced while stopped"] += 1
            process.stop(world.between(0.1, 6.0))
            self._cluster.spawn(process.seat)
        else:
            self._kill_if_alive(process)

    def _kill_if_alive(self, process: Process) -> None:
        if process.alive:
            self._world.seen["kill"] += 1
            self._cluster.kill(process)
            most = 4.0 if self._world.odds(0.6) else 0.1
            self._world.after(self._world.between(0.02, most), self.fill, process.seat)

    def fill(self, seat: Seat) -> None:
        """The launcher sees to it that a rank has a process."""
        if seat not in self._cluster.running and not self._over:
            self._cluster.spawn(seat)

    def look_after(self) -> None:
        """The launcher ends processes that can never serve again."""
        for process in list(self._cluster.living):
            if process.core.fatal is not None and process.resumes_at <= self._world.now:
                self._kill_if_alive(process)

    def _strike_while_posting(self, sender: Process) -> None:
        """The worst moments: with bytes in sockets."""
        if "deaths" in self._faults and self._world.faulty(0.02):
            self._world.after(self._world.between(0.0, 0.01), self._kill_if_alive, sender)

    def strike_after_success(self, process: Process, held: Held) -> None:
        """The worst moments: right after a sender wrote the last byte, before anybody else knows."""
        if not isinstance(held.room, SenderRoom) or held.room.poll is not KVPoll.SUCCESS:
            return
        if "deaths" in self._faults and self._world.faulty(0.05):
            self._world.after(self._world.between(0.0, 0.004), self._kill_if_alive, process)
        if "aborts" in self._faults and self._world.faulty(0.15):
            self._traffic.abort(held.room.room)

    def _leave(self, process: Process) -> None:
        self._world.seen["leaving"] += 1
        self._world.note("{} is leaving", process.name)
        process.after("engine", 0.0, self._traffic.close_all, process)
        process.after("engine", 0.05, self._leave_when_closed, process, self._world.now + CLOSE_TIMEOUT)

    def _leave_when_closed(self, process: Process, until: float) -> None:
        rooms = process.rooms
        if (rooms.rooms or rooms.in_flight) and self._world.now < until:
            process.after("engine", 0.1, self._leave_when_closed, process, until)
            return
        process.session.leave()
        self._kill_if_alive(process)

    def leave_all(self) -> None:
        """Every process ends in good order; none follows."""
        self._over = True
        for process in list(self._cluster.living):
            process.session.leave()
            self._cluster.kill(process)

    def _stop(self, process: Process) -> None:
        world = self._world
        if process.resumes_at < world.now:
            seconds = world.between(0.05, world.chance.choice((0.3, 2.0, 6.0)))
            world.note("{} is stopped for {:.2f} s", process.name, seconds)
            world.seen["stopped past its lease"] += seconds > 3
            process.stop(seconds)

    def _break(self, process: Process) -> None:
        world, connection = self._world, process.session.connection
        if connection is None:
            return
        if world.odds(0.5):
            world.note("the stream of {} breaks", process.name)
            connection.break_off()
        else:
            seconds = world.between(0.0, 4.0)
            world.note("the stream of {} stalls for {:.2f} s", process.name, seconds)
            world.seen["stall"] += 1
            pipe = world.chance.choice((connection.up, connection.down))
            pipe.stall(seconds)
