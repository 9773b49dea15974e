"""A prefill engine without a model: python -m examples.minimal.prefill HOST:PORT ROOM"""

import sys
import time

import numpy as np
from kvtransfer import KVManager, KVPoll, PagedGroup, Part, SlotGroup

TOKENS, CHUNK, PAGE = 100, 48, 16
kv = np.zeros((4, 32, PAGE, 2, 8), np.float32)  # layer, page, token, head, dim
first_token = np.zeros((8, 1), np.int64)  # one row per request
KV = PagedGroup("kv", PAGE, [Part("kv", dict(enumerate(kv)), "token_head", total_heads=2, head_count=2)])
AUX = SlotGroup("aux", [Part("first_token", first_token)])


def serve(service: str, room: int) -> int:
    free, row = list(range(32)), 5
    with KVManager(service, engine_id="prefill-0", role="prefill", model="minimal", groups=[KV, AUX]) as manager:
        sender = manager.sender(room, TOKENS)
        for start in range(0, TOKENS, CHUNK):
            pages = [free.pop() for _ in range(start, min(start + CHUNK, TOKENS), PAGE)]
            kv[:, pages] = np.random.default_rng([room, start]).random((4, len(pages), PAGE, 2, 8), np.float32)
            if start + CHUNK < TOKENS:
                sender.send({"kv": pages})  # on a GPU: ready=event, and the next chunk's work begins at once
        first_token[row] = room % 1000
        sender.send({"kv": pages}, slots={"aux": row}, last=True)
        while not sender.poll().final:  # an engine looks once a step instead
            time.sleep(0.001)
        sender.close()
        while not (released := manager.released()):  # until then pages may be read or written: never reuse them
            time.sleep(0.001)
        free += [page for each in released for page in each.pages["kv"]]
    print(f"room {room}: {sender.poll().name}", sender.failure() or f"{len(free)} pages free")
    return 0 if sender.poll() is KVPoll.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], int(sys.argv[2])))
