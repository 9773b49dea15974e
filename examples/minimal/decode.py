"""A decode engine without a model: python -m examples.minimal.decode HOST:PORT ROOM"""

import sys
import time

import numpy as np
from kvtransfer import KVManager, KVPoll, PagedGroup, Part, SlotGroup

TOKENS, PAGE = 100, 16
kv = np.zeros((4, 64, PAGE, 2, 8), np.float32)  # layer, page, token, head, dim; the number of pages is its own
first_token = np.zeros((8, 1), np.int64)  # one row per request
KV = PagedGroup("kv", PAGE, [Part("kv", dict(enumerate(kv)), "token_head", total_heads=2, head_count=2)])
AUX = SlotGroup("aux", [Part("first_token", first_token)])


def serve(service: str, room: int) -> int:
    free, row = list(range(0, 64, 3)), 2
    with KVManager(service, engine_id="decode-0", role="decode", model="minimal", groups=[KV, AUX]) as manager:
        while not manager.ready():  # registered, and connected with the other side
            time.sleep(0.01)
        receiver = manager.receiver(room, "prefill-0")
        pages = [free.pop() for _ in range(0, TOKENS, PAGE)]
        receiver.offer(TOKENS, {"kv": pages}, slots={"aux": row})
        while not receiver.poll().final:  # an engine looks once a step instead
            time.sleep(0.001)
        if receiver.poll() is KVPoll.SUCCESS:  # kv[:, pages] and the row are there: the first decode step
            print(f"room {room}: first token {first_token[row, 0]}")
        receiver.close()
        while not (released := manager.released()):  # until then a late write may land: never reuse them
            time.sleep(0.001)
        free += [page for each in released for page in each.pages["kv"]]
    print(f"room {room}: {receiver.poll().name}", receiver.failure() or f"{len(free)} pages free")
    return 0 if receiver.poll() is KVPoll.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], int(sys.argv[2])))
