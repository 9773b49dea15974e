package main

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// plane is a data plane in the process at the other end of the lines. Its actions are those of Python's mover: add_peer,
// drop_peer, post, cancel, notify, drain.
type plane struct {
	said *lines

	mu    sync.Mutex
	posts map[int64]*post // those that have not ended
	drawn int64
}

func newPlane(said *lines) *plane {
	return &plane{said: said, posts: map[int64]*post{}}
}

// post is one write to one receiver, of as many pieces as the other process makes of it.
type post struct {
	target *kvtransfer.Target
	room   int64
	writes []*kvtransfer.Write // one begun with the post, and one a piece
	ended  chan outcome
}

// outcome of a post: DONE, CANCELLED and REFUSED leave nothing in flight, FAILED may.
type outcome struct {
	Post         int64  `json:"post"`
	Outcome      string `json:"outcome"`
	Moved        int64  `json:"moved"`
	Error        string `json:"error"`
	Disconnected bool   `json:"disconnected"`
}

// items are one group's share of a post: the sender's item Sender[i] goes to the receiver's item Receiver[i].
type items struct {
	Group    string  `json:"group"`
	Sender   []int32 `json:"sender"`
	Receiver []int32 `json:"receiver"`
}

type action map[string]any

// AddPeer implements [kvtransfer.DataPlane], as the methods below do.
func (p *plane) AddPeer(peer kvtransfer.Peer) {
	links := make([][]byte, 0, len(peer.Links))
	for _, link := range peer.Links {
		links = append(links, marshal(link))
	}
	p.said.say(action{
		"action":   "add_peer",
		"peer":     marshal(&pb.Peer{WorkerId: peer.WorkerID, InstanceId: peer.InstanceID}),
		"layout":   marshal(peer.Layout),
		"links":    links,
		"metadata": peer.NIXLMetadata,
	})
}

func (p *plane) DropPeer(instanceID string) {
	p.said.say(action{"action": "drop_peer", "instance_id": instanceID})
}

func (p *plane) Cancel(room int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, post := range p.posts {
		if post.room == room {
			p.said.say(action{"action": "cancel", "post": id})
		}
	}
}

func (p *plane) Notify(instanceID string, payload []byte) {
	p.said.say(action{"action": "notify", "instance_id": instanceID, "payload": payload})
}

func (p *plane) Drain(token uint64) {
	p.said.say(action{"action": "drain", "token": token})
}

// write posts what a write that may begin is to bring, and returns how it ended.
func (p *plane) write(room int64, target *kvtransfer.Target, first *kvtransfer.Write, items []items) outcome {
	begun := &post{target: target, room: room, writes: []*kvtransfer.Write{first}, ended: make(chan outcome, 1)}
	p.mu.Lock()
	p.drawn++
	id := p.drawn
	p.posts[id] = begun
	p.mu.Unlock()
	p.said.say(action{
		"action": "post", "post": id, "receiver": target.Peer().GetInstanceId(), "items": items,
	})
	return <-begun.ended
}

// mayPost: the other process asks right before each piece.
func (p *plane) mayPost(id int64) bool {
	p.mu.Lock()
	asking := p.posts[id]
	p.mu.Unlock()
	write, allowed := asking.target.Begin()
	if allowed {
		asking.writes = append(asking.writes, write)
	}
	return allowed
}

func (p *plane) progressed(id, moved int64) {
	p.mu.Lock()
	moving := p.posts[id]
	p.mu.Unlock()
	moving.writes[0].Progress(moved)
}

// end ends all writes of a post.
func (p *plane) end(told outcome) error {
	p.mu.Lock()
	over, known := p.posts[told.Post]
	delete(p.posts, told.Post)
	p.mu.Unlock()
	if !known {
		return fmt.Errorf("post %d has ended", told.Post)
	}
	for _, piece := range over.writes[1:] {
		piece.Done(0) // the first counts the bytes of all
	}
	if told.Outcome == "FAILED" {
		reason := pb.FailureReason_FAILURE_REASON_WORKER_REPORTED
		if told.Disconnected {
			reason = pb.FailureReason_FAILURE_REASON_DISCONNECTED
		}
		over.writes[0].Failed(told.Moved, reason, told.Error)
	} else {
		over.writes[0].Done(told.Moved)
	}
	over.ended <- told
	return nil
}

func marshal(message proto.Message) []byte {
	raw, err := proto.Marshal(message)
	if err != nil {
		panic(err) // it came from the wire
	}
	return raw
}
