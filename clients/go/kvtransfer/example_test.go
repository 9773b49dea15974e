package kvtransfer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func ExampleNew() {
	client, err := kvtransfer.New(target) // such as "127.0.0.1:50051"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	info, err := client.GetServerInfo(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a receiver has", info.GetLimits().GetVote().AsDuration(), "to answer when its room is asked to end")
	// Output: a receiver has 5s to answer when its room is asked to end
}

func ExampleClient_ListEngines() {
	client, err := kvtransfer.New(target)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	ready := &pb.ListEnginesRequest{Role: pb.Role_ROLE_PREFILL, Model: "llama"}
	for engine, err := range client.ListEngines(ctx, ready) {
		if err != nil {
			log.Fatal(err)
		}
		if engine.GetState() == pb.EngineState_ENGINE_STATE_READY {
			fmt.Println(engine.GetEngineId(), engine.GetWorkers()[0].GetEndpoint())
		}
	}
	// Output:
}

func ExampleError() {
	client, err := kvtransfer.New(target)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.GetEngine(context.Background(), "no engine", pb.WorkerView_WORKER_VIEW_BASIC)
	if errors.Is(err, kvtransfer.ErrInvalidField) {
		fmt.Println("no such name")
	}
	var failed *kvtransfer.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Field, failed.Metadata["value"])
	}
	// Output:
	// no such name
	// engine_id 'no engine'
}

func ExampleClient_Watch() {
	client, err := kvtransfer.New(target)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const room = 4_000_000_001
	watched := &pb.WatchRequest{Rooms: []int64{room}, View: pb.TransferView_TRANSFER_VIEW_FULL}
	if _, err := client.Abort(ctx, "for show", room); err != nil {
		log.Fatal(err)
	}
	for answer, err := range client.Watch(ctx, watched) {
		if err != nil {
			log.Fatal(err)
		}
		for _, transfer := range answer.GetTransfers() {
			fmt.Println(transfer.GetPoll(), transfer.GetFailure().GetMessage())
			if kvtransfer.Final(transfer.GetPoll()) {
				return
			}
		}
	}
	// Output: KV_POLL_FAILED for show
}

// A prefill and a decode worker, here in one process, and a room between them. A copier moves the bytes.
func ExampleWorker() {
	client, err := kvtransfer.New(target) // such as "127.0.0.1:50051"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	const room = 4_000_000_002
	var engines sync.WaitGroup
	var host sync.Map
	engines.Go(func() { prefill(ctx, client, &copier{host: &host}, room) })
	engines.Go(func() { decode(ctx, client, &copier{host: &host}, room, "example-prefill") })
	engines.Wait()
	// Output:
	// KV_POLL_SUCCESS: 20 tokens in pages [3 9], 'h' first
	// free again: map[kv:[3 9]]
}

// prefill serves a request of 20 tokens, in pages 0 and 1, and in row 5.
func prefill(ctx context.Context, client *kvtransfer.Client, plane *copier, room int64) {
	worker, err := plane.start(client, "example-prefill", pb.Role_ROLE_PREFILL)
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close(ctx)
	plane.memory["kv"][0], plane.memory["kv"][1], plane.memory["aux"][5] = 'h', 'i', '!'

	sender, err := worker.Sender(kvtransfer.Join{Room: room}, 20)
	if err != nil {
		log.Fatal(err)
	}
	err = worker.Wait(ctx, func() bool { return sender.Poll() != pb.KVPoll_KV_POLL_BOOTSTRAPPING })
	if err != nil {
		log.Fatal(err)
	}
	for _, target := range sender.Targets() {
		write, ok := target.Begin()
		if !ok { // the lease has lapsed, or the room is to end
			log.Fatal(sender.Failure())
		}
		moved := plane.write(target, map[string][]int32{"kv": {0, 1}, "aux": {5}})
		write.Done(moved)
		err = target.Complete()
		if err != nil {
			log.Fatal(err)
		}
	}
	sender.Close()
}

// decode receives it in pages 3 and 9, and in row 1.
func decode(ctx context.Context, client *kvtransfer.Client, plane *copier, room int64, prefillEngine string) {
	worker, err := plane.start(client, "example-decode", pb.Role_ROLE_DECODE)
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close(ctx)
	// The service knows the engines that are there: a join that names one which is not is refused.
	if err := worker.Wait(ctx, func() bool { return len(worker.Peers()) > 0 }); err != nil {
		log.Fatal(err)
	}
	receiver, err := worker.Receiver(kvtransfer.Join{Room: room, PeerEngine: prefillEngine})
	if err != nil {
		log.Fatal(err)
	}
	err = receiver.Offer(kvtransfer.Destination{
		Tokens: 20, Pages: map[string][]int32{"kv": {3, 9}}, Slots: map[string]int32{"aux": 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	poll, err := receiver.Wait(ctx) // SUCCESS: the bytes are there; else receiver.Failure() says why
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: 20 tokens in pages [3 9], %q first\n", poll, plane.memory["kv"][3])
	receiver.Close()
	err = worker.Wait(ctx, func() bool {
		for _, released := range worker.Released() {
			fmt.Println("free again:", released.Pages)
			return true
		}
		return false
	})
	if err != nil {
		log.Fatal(err)
	}
}

// copier is a data plane between workers of one process, whose pages and rows are one byte each.
type copier struct {
	host   *sync.Map // all copiers, by instance
	worker *kvtransfer.Worker
	memory map[string][]byte // by group
}

func (c *copier) start(client *kvtransfer.Client, engine string, role pb.Role) (*kvtransfer.Worker, error) {
	c.memory = map[string][]byte{"kv": make([]byte, 64), "aux": make([]byte, 8)}
	const kv, aux, spare = 1 << 32, 1 << 33, 1 << 34 // NIXL would need the true addresses
	pages := &pb.Region{Layer: proto.Int32(0), Address: kv, ItemCount: 64, ItemStride: 8192, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	rows := &pb.Region{Address: aux, ItemCount: 8, ItemStride: 64, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	scratch := &pb.Region{Address: spare, ItemCount: 1, ItemStride: 1 << 20, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	k := &pb.Part{
		Name: "k", Dtype: "float16", Order: pb.Part_ORDER_TOKEN_HEAD, TotalHeads: 4, HeadCount: 4, ItemBytes: 8192,
		Regions: []*pb.Region{pages},
	}
	first := &pb.Part{Name: "first", Dtype: "uint8", Order: pb.Part_ORDER_WHOLE, ItemBytes: 64, Regions: []*pb.Region{rows}}
	layout := &pb.Layout{
		Model: "llama",
		Groups: []*pb.BufferGroup{
			{Name: "kv", Kind: pb.BufferGroup_KIND_PAGED, PageTokens: 16, Parts: []*pb.Part{k}},
			{Name: "aux", Kind: pb.BufferGroup_KIND_SLOT, Parts: []*pb.Part{first}},
		},
		Scratch: scratch, // lent to warm connections up
	}
	plane, metadata := c, []byte("what NIXL's get_agent_metadata() returns")
	worker, err := kvtransfer.StartWorker(client, &pb.RegisterWorkerRequest{
		EngineId: engine, Role: role, Layout: layout, NixlMetadata: metadata,
	}, plane)
	if err == nil {
		c.worker = worker
		c.host.Store(worker.InstanceID(), c)
	}
	return worker, err
}

// write copies to a receiver what it wants of the sender's sources, by group. Returns the bytes.
func (c *copier) write(target *kvtransfer.Target, sources map[string][]int32) (moved int64) {
	receiver, _ := c.host.Load(target.Peer().GetInstanceId())
	for _, group := range target.Destination().GetGroups() {
		name := group.GetGroup()
		for at, index := range group.GetIndices() {
			receiver.(*copier).memory[name][index] = c.memory[name][sources[name][at]]
			moved++
		}
	}
	return moved
}

func (c *copier) AddPeer(kvtransfer.Peer) {} // there is nothing to connect
func (c *copier) DropPeer(string)         {}
func (c *copier) Cancel(int64)            {} // a copy is over when write returns

func (c *copier) Notify(instanceID string, payload []byte) {
	if receiver, here := c.host.Load(instanceID); here {
		go receiver.(*copier).worker.Notified(payload)
	}
}

func (c *copier) Drain(token uint64) {
	go c.worker.Drained(token) // nothing that was sent is still on its way
}
