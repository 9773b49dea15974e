"""The machines of one run: a service, and a process at each rank of each engine, started and ended by a launcher."""

import uuid

from .config import SERVICE, Config
from .network import Network
from .nixl import Fabric
from .process import Process, Seat
from .service import Observer, SimulatedService
from .world import World

MODEL = "model"
MISFIT = "other-model"


def _seats(config: Config) -> list[Seat]:
    engines = [("prefill", "p0", MODEL)] + [("decode", f"d{number}", MODEL) for number in range(config.decode_engines)]
    if "misfits" in config.faults:
        engines.append(("decode", "misfit", MISFIT))
    return [
        Seat(engine_id, role, model, config.tp, config.dp, tp_rank, dp_rank)  # type: ignore[arg-type] # role
        for role, engine_id, model in engines
        for dp_rank in range(config.dp)
        for tp_rank in range(config.tp)
    ]


class Cluster:
    """Processes come and go; the service stays, but is always asked for by `service()`, as it need not for ever."""

    def __init__(self, world: World, config: Config, observe: Observer) -> None:
        self.world = world
        self.fabric = Fabric(world, "nixl" in config.faults)
        self.network = Network(world, "losses" in config.faults, "copies" in config.faults)
        self._service = SimulatedService(world, SERVICE, observe)
        self.running: dict[Seat, Process] = {}
        self.living: list[Process] = []
        """Every process that has not ended, those included whose rank another has."""
        self.exited: dict[Seat, list[str]] = {seat: [] for seat in _seats(config)}
        """Processes that the launcher saw exit, by rank."""
        for seat in self.exited:
            self.spawn(seat)

    def service(self) -> SimulatedService:
        """The service, as it is now."""
        return self._service

    def spawn(self, seat: Seat) -> None:
        """Starts a process at a rank, whether or not another is still there."""
        attested = [] if self.world.faulty(0.3) else list(self.exited[seat])
        instance_id = str(uuid.UUID(int=self.world.chance.getrandbits(128), version=4))
        process = Process(self.world, self.fabric, self.network, self.service, seat, instance_id, attested)
        self.running[seat] = process
        self.living.append(process)
        self.world.note("{} starts, attesting {}", process.name, [instance[:4] for instance in attested])

    def kill(self, process: Process) -> None:
        """Ends a process at once."""
        self.world.note("{} is killed", process.name)
        process.alive = False
        self.living.remove(process)
        self.fabric.exited(process)
        if process.session.connection is not None:
            process.session.connection.break_off()
        self.exited[process.seat].append(process.instance_id)
        if self.running.get(process.seat) is process:
            del self.running[process.seat]

    def unproven(self, process: Process) -> bool:
        """Whether somebody may wait for a proof that only another process at this rank can bring."""
        attested = process.attests if process.session.ref is not None else ()
        return process.rooms.undrained or not set(self.exited[process.seat]) <= set(attested)

    def restart(self, process: Process) -> None:
        """Ends a process and starts another in its place."""
        self.kill(process)
        self.spawn(process.seat)
