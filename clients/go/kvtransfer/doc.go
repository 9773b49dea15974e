// Package kvtransfer talks to kvservice, the control plane that decides which pages of a KV cache go from which prefill
// worker to which decode worker. Below, pb is github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1, the generated
// messages: what each field means is said there.
//
// # Routers and tools
//
// They hold a [Client], which has every call of the service:
//
//	client, err := kvtransfer.New(target) // such as "127.0.0.1:50051"
//	ready := &pb.ListEnginesRequest{Role: pb.Role_ROLE_PREFILL, Model: "llama"}
//	for engine, err := range client.ListEngines(ctx, ready) {
//		...
//	}
//	watched := &pb.WatchRequest{Rooms: []int64{room}, View: pb.TransferView_TRANSFER_VIEW_FULL}
//	for answer, err := range client.Watch(ctx, watched) {
//		...
//	}
//
// What fails is an [*Error], to be told apart by [errors.Is] and the Err variables:
//
//	if errors.Is(err, kvtransfer.ErrInvalidField) {
//		...
//	}
//
// A transfer that failed is no error: it is a room whose poll is FAILED, and whose failure says why. A router draws a
// room's number at random, new for each attempt, hands it to a prefill and to a decode engine, and calls [Client.Abort]
// when nobody waits for it any more.
//
// # Engines
//
// A process of an engine holds a [Worker]: it registers the memory that the process lends, keeps its lease and one stream
// with the service, comes back by itself after a break, and has a local view of its rooms. Memory is described by a
// layout. Here it is one array of 64 pages of 16 tokens, and one of 8 rows; both sides' groups, parts and layers are
// matched by name:
//
//	pages := &pb.Region{Layer: proto.Int32(0), Address: kv, ItemCount: 64, ItemStride: 8192, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
//	rows := &pb.Region{Address: aux, ItemCount: 8, ItemStride: 64, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
//	scratch := &pb.Region{Address: spare, ItemCount: 1, ItemStride: 1 << 20, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
//	k := &pb.Part{
//		Name: "k", Dtype: "float16", Order: pb.Part_ORDER_TOKEN_HEAD, TotalHeads: 4, HeadCount: 4, ItemBytes: 8192,
//		Regions: []*pb.Region{pages},
//	}
//	first := &pb.Part{Name: "first", Dtype: "uint8", Order: pb.Part_ORDER_WHOLE, ItemBytes: 64, Regions: []*pb.Region{rows}}
//	layout := &pb.Layout{
//		Model: "llama",
//		Groups: []*pb.BufferGroup{
//			{Name: "kv", Kind: pb.BufferGroup_KIND_PAGED, PageTokens: 16, Parts: []*pb.Part{k}},
//			{Name: "aux", Kind: pb.BufferGroup_KIND_SLOT, Parts: []*pb.Part{first}},
//		},
//		Scratch: scratch, // lent to warm connections up
//	}
//	worker, err := kvtransfer.StartWorker(client, &pb.RegisterWorkerRequest{
//		EngineId: engine, Role: role, Layout: layout, NixlMetadata: metadata,
//	}, plane)
//
// A decode worker joins a room, says where it wants the request, and waits. The engine that it names must be there, as
// [Worker.Peers] shows:
//
//	receiver, err := worker.Receiver(kvtransfer.Join{Room: room, PeerEngine: prefillEngine})
//	err = receiver.Offer(kvtransfer.Destination{
//		Tokens: 20, Pages: map[string][]int32{"kv": {3, 9}}, Slots: map[string]int32{"aux": 1},
//	})
//	poll, err := receiver.Wait(ctx) // SUCCESS: the bytes are there; else receiver.Failure() says why
//	receiver.Close()
//
// A prefill worker joins it, in any order, waits until all receivers have offered, and serves each:
//
//	sender, err := worker.Sender(kvtransfer.Join{Room: room}, 20)
//	err = worker.Wait(ctx, func() bool { return sender.Poll() != pb.KVPoll_KV_POLL_BOOTSTRAPPING })
//	for _, target := range sender.Targets() {
//		write, ok := target.Begin()
//		if !ok { // the lease has lapsed, or the room is to end
//			...
//		}
//		moved := plane.write(target, map[string][]int32{"kv": {0, 1}, "aux": {5}})
//		write.Done(moved)
//		err = target.Complete()
//	}
//	sender.Close()
//
// Pages and slots are the engine's again once [Worker.Released] names their room, and never before: nobody can take back a
// write that is under way. A receiver's may have to wait until a sender that died is proven to write no more.
//
// Poll, Failure and the like read what is known here and wait for nothing; an engine may ask in each of its steps, or let
// [Worker.Wait] or [Worker.Changed] tell. Failures of rooms are data, a [Failure]. [Worker.Err] is not nil once the worker
// can never serve again. What happens besides is logged by [log/slog].
//
// # Moving the bytes
//
// This package moves none: a [DataPlane], or the caller, does, through NIXL where the peers are in Python. For whoever
// writes one:
//
//   - Before each piece of a write that is handed over, [Target.Begin] is asked: a worker whose lease has lapsed, or whose
//     room is to end, must write no more. If it says no and the room goes on, it may say yes later.
//   - Each piece that was begun is ended by [Write.Done] or [Write.Failed], when nothing of it is in flight any more or
//     when that cannot be known. Until then the room's pages do not come back, on either side.
//   - A target's items are those of its Destination: the position of an index in a group's list says which page of the
//     request goes there, from first_token on. Peer's Links say which parts, layers and heads move.
//   - [Target.Complete] has the receivers notified by [DataPlane].Notify; what arrives so at the other end is handed to
//     [Worker.Notified]. Who does not get it hears from the service, a little later.
package kvtransfer
