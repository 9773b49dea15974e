// Package kvtransfer talks to kvservice, the control plane that decides which pages of a KV cache go from which prefill
// worker to which decode worker.
//
// A router or a tool holds a [Client], which has every call of the service:
//
//	client, err := kvtransfer.New("127.0.0.1:50051")
//	for engine, err := range client.ListEngines(ctx, &pb.ListEnginesRequest{Role: pb.Role_ROLE_PREFILL}) { ... }
//	for answer, err := range client.Watch(ctx, &pb.WatchRequest{Rooms: []int64{room}}) { ... }
//
// where pb is github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1, the generated messages. What fails is an
// [*Error], to be told apart by [errors.Is] and the Err variables:
//
//	if errors.Is(err, kvtransfer.ErrEngineNotFound) { ... }
//
// A transfer that failed is no error: it is a room whose poll is FAILED, and whose failure says why.
//
// An engine's process holds a [Worker], which registers, keeps its lease and one stream with the service, and has a local
// view of its rooms: a [Sender] or a [Receiver] each. It moves no bytes: a [DataPlane], or the caller, does, and tells what
// was written.
package kvtransfer
