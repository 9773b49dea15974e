package kvtransfer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

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

func ExampleError() {
	client, err := kvtransfer.New(target)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.GetEngine(context.Background(), "no engine", pb.WorkerView_WORKER_VIEW_BASIC)
	fmt.Println(errors.Is(err, kvtransfer.ErrInvalidField))
	var failed *kvtransfer.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Field, failed.Metadata["value"])
	}
	// Output:
	// true
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
	if _, err := client.Abort(ctx, "for show", room); err != nil {
		log.Fatal(err)
	}
	for answer, err := range client.Watch(ctx, &pb.WatchRequest{Rooms: []int64{room}}) {
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

// A prefill and a decode worker, here in one process, and a room between them. Who moves the bytes is left out.
func ExampleWorker() {
	client, err := kvtransfer.New(target)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	engines := map[pb.Role]string{pb.Role_ROLE_PREFILL: "example-prefill", pb.Role_ROLE_DECODE: "example-decode"}
	workers := map[pb.Role]*kvtransfer.Worker{}
	for role, engine := range engines {
		worker, err := kvtransfer.StartWorker(client, &pb.RegisterWorkerRequest{
			EngineId: engine,
			Role:     role,
			Layout:   layout("example"), // the memory that it lends
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer worker.Close(ctx)
		if err := worker.Ready(ctx); err != nil {
			log.Fatal(err)
		}
		workers[role] = worker
	}
	prefill, decode := workers[pb.Role_ROLE_PREFILL], workers[pb.Role_ROLE_DECODE]

	const room = 4_000_000_002
	receiver, err := decode.Receiver(kvtransfer.Join{Room: room, PeerEngine: "example-prefill"})
	if err != nil {
		log.Fatal(err)
	}
	if err := receiver.Offer(kvtransfer.Destination{
		Tokens: 20,
		Pages:  map[string][]int32{"kv": {3, 9}},
		Slots:  map[string]int32{"aux": 1},
	}); err != nil {
		log.Fatal(err)
	}

	sender, err := prefill.Sender(kvtransfer.Join{Room: room}, 20)
	if err != nil {
		log.Fatal(err)
	}
	// All receivers have offered, and the pages of this side are computed.
	if err := prefill.Wait(ctx, func() bool { return sender.Poll() >= pb.KVPoll_KV_POLL_WAITING_FOR_INPUT }); err != nil {
		log.Fatal(err)
	}
	for _, target := range sender.Targets() {
		write, ok := target.Begin() // false once the lease has lapsed, or the room was asked to end
		if !ok {
			log.Fatal(sender.Failure())
		}
		// ... write to target.Destination() of target.Peer() ...
		write.Done(2*4*16*4*64 + 64)
		if err := target.Complete(); err != nil {
			log.Fatal(err)
		}
	}

	poll, err := receiver.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(poll)
	sender.Close()
	receiver.Close()
	if err := decode.Wait(ctx, func() bool {
		for _, released := range decode.Released() {
			fmt.Println("free again:", released.Pages)
			return true
		}
		return false
	}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// KV_POLL_SUCCESS
	// free again: map[kv:[3 9]]
}
