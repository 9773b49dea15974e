"""The deterministic simulator: the real domain and the real worker side, everything around them made of one seed.

Real are the service below gRPC (`kvservice`, its stream method included) and, of each worker, `rooms` and all that is
pure with it, the core and the handles that an engine holds. Simulated are time (`world`, `loop`), the network
(`network`, `session`), NIXL and its mover (`nixl`, `mover`), memory, of which contents are names (`memory`), engines
and routers (`traffic`), and what strikes them (`faults`). After each step `service_checks`, `worker_checks` and
`follower` look at the invariants of the protocol; at the end of a run all is calm, each room must come to its end and
each table to its first state (`tables`).

    python -m tests.sim 7                       the trace of one run
    python -m tests.sim 7 --tp 1 --faults nixl  of a simpler one
    python -m tests.sim 0 --runs 1000           many runs, up to the first that breaks an invariant
    KVTRANSFER_SIM_STEPS=10000000 pytest tests/sim/test_simulation.py

The service may be replaced in the middle of a run (`Cluster.service`), which nothing does yet.
"""
