package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// engine holds what an engine would.
type engine struct {
	client *kvtransfer.Client
	plane  *plane
	worker *kvtransfer.Worker
	rooms  map[int64]room
}

// room is what a [kvtransfer.Sender] and a [kvtransfer.Receiver] have in common.
type room interface {
	Room() int64
	Poll() pb.KVPoll
	RoomPoll() pb.KVPoll
	Failure() *kvtransfer.Failure
	Release() *pb.Release
	Abort(message string)
	Close()
}

type (
	none     struct{}
	numbered struct {
		Room int64 `json:"room"`
	}
	sending struct {
		numbered
		Tokens int32              `json:"tokens"`
		Pages  map[string][]int32 `json:"pages"`
		Slots  map[string]int32   `json:"slots"`
	}
	receiving struct {
		sending
		PrefillEngine string `json:"prefill_engine"`
		PrefixTokens  int32  `json:"prefix_tokens"`
	}
)

func (e *engine) handlers() map[string]handler {
	return map[string]handler{
		"start":      with(e.start),
		"known":      with(e.known),
		"drain":      with(e.drain),
		"sender":     with(e.sender),
		"send":       with(e.send),
		"receiver":   with(e.receiver),
		"offer":      with(e.offer),
		"state":      with(e.state),
		"abort":      with(e.abort),
		"close_room": with(e.closeRoom),
		"released":   with(e.released),

		// Of the data plane.
		"may_post":   with(e.mayPost),
		"progressed": with(func(told outcome) (any, error) { e.plane.progressed(told.Post, told.Moved); return nil, nil }),
		"ended":      with(func(told outcome) (any, error) { return nil, e.plane.end(told) }),
		"notified":   with(e.notified),
		"drained":    with(e.drained),
	}
}

func (e *engine) start(args struct{ Registration []byte }) (any, error) {
	said := &pb.RegisterWorkerRequest{}
	if err := proto.Unmarshal(args.Registration, said); err != nil {
		return nil, err
	}
	worker, err := kvtransfer.StartWorker(e.client, said, e.plane)
	e.worker = worker
	return nil, err
}

// known is what the worker knows of itself and of the others.
func (e *engine) known(none) (any, error) {
	peers := []string{}
	for _, peer := range e.worker.Peers() {
		peers = append(peers, peer.InstanceID)
	}
	ref := e.worker.Ref()
	return map[string]any{
		"open": e.worker.Open(), "worker_id": ref.GetWorkerId(), "epoch": ref.GetEpoch(), "peers": peers,
	}, e.worker.Err()
}

func (e *engine) drain(args struct{ Draining bool }) (any, error) {
	e.worker.SetDraining(args.Draining)
	return nil, nil
}

func (e *engine) sender(args sending) (any, error) {
	sender, err := e.worker.Sender(kvtransfer.Join{Room: args.Room}, args.Tokens)
	if err == nil {
		e.rooms[args.Room] = sender
	}
	return nil, err
}

func (e *engine) receiver(args receiving) (any, error) {
	receiver, err := e.worker.Receiver(kvtransfer.Join{Room: args.Room, PeerEngine: args.PrefillEngine})
	if err == nil {
		e.rooms[args.Room] = receiver
	}
	return nil, err
}

func (e *engine) offer(args receiving) (any, error) {
	receiver, ok := e.rooms[args.Room].(*kvtransfer.Receiver)
	if !ok {
		return nil, fmt.Errorf("room %d has no receiver", args.Room)
	}
	return nil, receiver.Offer(kvtransfer.Destination{
		Tokens: args.Tokens, PrefixTokens: args.PrefixTokens, Pages: args.Pages, Slots: args.Slots,
	})
}

// send writes all of a request to all of its receivers, once they have offered.
func (e *engine) send(args sending) (any, error) {
	sender, ok := e.rooms[args.Room].(*kvtransfer.Sender)
	if !ok {
		return nil, fmt.Errorf("room %d has no sender", args.Room)
	}
	go func() {
		offered := func() bool { return sender.Poll() != pb.KVPoll_KV_POLL_BOOTSTRAPPING }
		if e.worker.Wait(context.Background(), offered) != nil {
			return // it can never serve, and its rooms have failed
		}
		for _, target := range sender.Targets() {
			go e.serve(sender, target, args)
		}
	}()
	return nil, nil
}

// serve writes to a receiver, anew if it was interrupted by a lapse of the lease, until all is written or the room ends.
func (e *engine) serve(sender *kvtransfer.Sender, target *kvtransfer.Target, args sending) {
	wanted := e.items(target.Destination(), args)
	for {
		var write *kvtransfer.Write
		begun := false
		err := e.worker.Wait(context.Background(), func() bool {
			write, begun = target.Begin()
			return begun || kvtransfer.Final(sender.Poll())
		})
		if err != nil || !begun {
			return
		}
		switch ended := e.plane.write(sender.Room(), target, write, wanted); ended.Outcome {
		case "DONE":
			if err := target.Complete(); err != nil {
				panic(err) // no write is under way
			}
			return
		case "REFUSED":
			sender.Abort(ended.Error)
		}
	}
}

// items pairs the sender's pages and slots with the receiver's. Both sides' pages are of one size.
func (e *engine) items(wanted *pb.Destination, args sending) []items {
	pairs := []items{}
	for _, group := range wanted.GetGroups() {
		name, indices := group.GetGroup(), group.GetIndices()
		sources, paged := args.Pages[name]
		if !paged {
			sources = []int32{args.Slots[name]}
		}
		pairs = append(pairs, items{Group: name, Sender: sources[len(sources)-len(indices):], Receiver: indices})
	}
	return pairs
}

func (e *engine) state(args numbered) (any, error) {
	one, open := e.rooms[args.Room]
	if !open {
		return nil, fmt.Errorf("room %d is not open", args.Room)
	}
	state := map[string]any{
		"poll": one.Poll(), "room_poll": one.RoomPoll(), "release": one.Release().GetState().String(), "failure": nil,
	}
	if failure := one.Failure(); failure != nil {
		reason := strings.TrimPrefix(failure.Reason.String(), "FAILURE_REASON_")
		state["failure"] = []string{reason, failure.Message, failure.WorkerID}
	}
	return state, nil
}

func (e *engine) abort(args struct {
	numbered
	Message string `json:"message"`
}) (any, error) {
	e.rooms[args.Room].Abort(args.Message)
	return nil, nil
}

func (e *engine) closeRoom(args numbered) (any, error) {
	e.rooms[args.Room].Close()
	return nil, nil
}

func (e *engine) released(none) (any, error) {
	released := []any{}
	for _, one := range e.worker.Released() {
		released = append(released, map[string]any{
			"room": one.Room, "pages": one.Pages, "slots": one.Slots, "presumed": one.Presumed,
		})
	}
	return released, nil
}

func (e *engine) mayPost(args outcome) (any, error) {
	return e.plane.mayPost(args.Post), nil
}

func (e *engine) notified(args struct{ Payload []byte }) (any, error) {
	e.worker.Notified(args.Payload)
	return nil, nil
}

func (e *engine) drained(args struct{ Token uint64 }) (any, error) {
	e.worker.Drained(args.Token)
	return nil, nil
}
