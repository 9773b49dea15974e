"""A worker of SGLang 0.5.23, as its scheduler would drive it. Lives in the environment that `install.sh` makes."""

import logging
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.pool import Pool
from benchmarks.processes import Span
from benchmarks.shapes import PAGE_TOKENS, Shape

LOOK_EVERY_S = 50e-6
"""Between two polls, as this project's own worker is polled here; a scheduler polls once a step, which is longer."""
ROOM_TIMEOUT_S = 60.0
AUX_BYTES = 256
AUX_ROWS = 64


class SglangWorker:
    """One rank of a prefill or decode engine, and its pool."""

    def __init__(self, role: str, port: int, shape: Shape) -> None:
        """A prefill worker's bootstrap server listens on `port` of loopback."""
        arguments = _prepare(role, port)
        from sglang.srt.disaggregation.base.conn import KVPoll  # type: ignore[import-not-found]  # see the module
        from sglang.srt.disaggregation.nixl import conn  # type: ignore[import-not-found]
        from sglang.srt.disaggregation.utils import DisaggregationMode  # type: ignore[import-not-found]

        self._conn, self._polls = conn, KVPoll
        self._shape, self._address = shape, f"127.0.0.1:{port}"
        self._pool = Pool(shape, filled=role == "prefill")
        self._aux = np.zeros((AUX_ROWS, AUX_BYTES), np.uint8)
        if role == "prefill":
            self._server = conn.NixlKVBootstrapServer("127.0.0.1", port)
        mode = DisaggregationMode.PREFILL if role == "prefill" else DisaggregationMode.DECODE
        self._manager = conn.NixlKVManager(self._describe(), mode, arguments, False)

    def wait_ready(self) -> None:
        """A decode worker learns what the prefill side is like; its scheduler does so before the first request."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not self._manager.try_ensure_parallel_info(self._address):
            _check(until, "the prefill side was not known")

    def join(self, room: int, count: int) -> None:
        """The sender's part for so many pages, up to where it waits for its receiver."""
        self._sender = self._conn.NixlKVSender(self._manager, self._address, room)
        self._sender.init(count, aux_index=room % AUX_ROWS)

    def send(self, pages: Sequence[int]) -> None:
        """The rest of it, until it has succeeded. Raises RuntimeError."""
        self._await_change(self._sender, self._polls.Bootstrapping)
        self._sender.send(np.asarray(pages, np.int32))
        self._await_success(self._sender)

    def receive(self, room: int, pages: Sequence[int]) -> Span:
        """A receiver's part: when it was made, and when it saw its success. Raises RuntimeError."""
        joined = time.monotonic()
        receiver = self._conn.NixlKVReceiver(self._manager, self._address, room)
        receiver.init(0)
        self._await_change(receiver, self._polls.Bootstrapping)
        receiver.send_metadata(np.asarray(pages, np.int32), aux_index=room % AUX_ROWS, state_indices=[])
        succeeded = self._await_success(receiver)
        return joined, succeeded

    def _await_change(self, side: Any, poll: object) -> None:
        until = time.monotonic() + ROOM_TIMEOUT_S
        while side.poll() == poll:
            _check(until, f"nothing came after {poll}")

    def _await_success(self, side: Any) -> float:
        until = time.monotonic() + ROOM_TIMEOUT_S
        while (seen := side.poll()) not in (self._polls.Success, self._polls.Failed):
            _check(until, f"nothing came after {seen}")
        now = time.monotonic()
        if seen != self._polls.Success:
            raise RuntimeError("SGLang reports a failed transfer")
        side.clear()
        return now

    def clear(self, pages: Sequence[int]) -> None:
        """See Pool."""
        self._pool.clear(pages)

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """See Pool."""
        return self._pool.wrong_pieces(targets, sources)

    def close(self) -> None:
        """Its threads have no end: the process goes with all of them."""
        os._exit(0)

    def _describe(self) -> Any:
        """K of all layers, then V of all layers, a buffer each, as SGLang's pools for attention with heads are."""
        from sglang.srt.disaggregation.base.conn import KVArgs

        shape = self._shape
        pieces = [*self._pool.memory[0::2], *self._pool.memory[1::2]]
        args = KVArgs()
        args.kv_data_ptrs = [piece.ctypes.data for piece in pieces]
        args.kv_data_lens = [piece.nbytes for piece in pieces]
        args.kv_item_lens = [shape.piece_bytes] * len(pieces)
        args.kv_layer_ids = [*range(shape.layers), *range(shape.layers)]
        args.kv_data_mem_kinds = ["DRAM"] * len(pieces)
        args.kv_cache_dtype_str = "bfloat16"
        args.kv_head_num = args.total_kv_head_num = 1
        args.page_size = PAGE_TOKENS
        args.prefill_start_layer, args.prefill_end_layer = 0, shape.layers
        args.aux_data_ptrs, args.aux_data_lens = [self._aux.ctypes.data], [self._aux.nbytes]
        args.aux_item_lens = [AUX_BYTES]
        for name in ("types", "data_ptrs", "data_lens", "item_lens", "layer_ids", "dim_per_tensor"):
            setattr(args, f"state_{name}", [])
        args.state_slice_outer_counts = []
        args.engine_rank = args.pp_rank = args.system_dp_rank = args.gpu_id = 0
        args.ib_device = args.rust_http_port = args.kv_layout = None
        args.is_hybrid_mla_backend = False
        return args


def _prepare(role: str, port: int) -> Any:
    """Does what SGLang's launcher does in a process of one rank. Returns the arguments that it would have parsed."""
    warnings.filterwarnings("ignore")
    logging.basicConfig(level=logging.WARNING)
    os.environ.setdefault("SGLANG_HOST_IP", "127.0.0.1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from sglang.srt import runtime_context  # type: ignore[import-not-found]

    arguments = (
        runtime_context.get_context()
        .override_server_args(
            host="127.0.0.1",
            port=port + 1,
            device="cpu",
            disaggregation_mode=role,
            disaggregation_bootstrap_port=port,
            page_size=PAGE_TOKENS,
        )
        .install()
    )
    runtime_context.get_device()._set("gpu_id", 0)
    ranks = ("tp_rank", "pp_rank", "attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "attn_dcp_rank")
    runtime_context.get_parallel().override_permanently(**dict.fromkeys(ranks, 0), dp_rank=None, pp_group=None)
    return arguments


def _check(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"{what} within {ROOM_TIMEOUT_S:g} s")
    time.sleep(LOOK_EVERY_S)
