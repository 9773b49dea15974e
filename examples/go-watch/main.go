// Command go-watch opens a room and prints the state of each of its ranks, until Ctrl-C: go-watch HOST:PORT ROOM
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func main() {
	room, client := int64(0), must(kvtransfer.New(os.Args[1]))
	must(fmt.Sscan(os.Args[2], &room))
	rows := &pb.Region{Address: 1 << 32, ItemCount: 8, ItemStride: 64, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	scratch := &pb.Region{Address: 1 << 33, ItemCount: 1, ItemStride: 1 << 20, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	part := &pb.Part{Name: "row", Dtype: "uint8", Order: pb.Part_ORDER_WHOLE, ItemBytes: 64, Regions: []*pb.Region{rows}}
	group := &pb.BufferGroup{Name: "aux", Kind: pb.BufferGroup_KIND_SLOT, Parts: []*pb.Part{part}}
	layout := &pb.Layout{Model: "go-watch", Groups: []*pb.BufferGroup{group}, Scratch: scratch}
	me := &pb.RegisterWorkerRequest{EngineId: "go-watch", Role: pb.Role_ROLE_PREFILL, Layout: layout}
	must(must(kvtransfer.StartWorker(client, me, nil)).Sender(kvtransfer.Join{Room: room}, 1))
	watched := &pb.WatchRequest{Rooms: []int64{room}, View: pb.TransferView_TRANSFER_VIEW_FULL}
	for answer, err := range client.Watch(context.Background(), watched) {
		for _, transfer := range must(answer, err).GetTransfers() {
			for _, rank := range transfer.GetParticipants() {
				fmt.Println("room", room, transfer.GetPoll(), "rank", rank.GetWorker().GetWorkerId(), rank.GetPoll())
			}
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
