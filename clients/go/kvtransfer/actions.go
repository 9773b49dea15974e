package kvtransfer

import pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"

// DataPlane moves the bytes: it is told what a worker wants of its memory, one call at a time, in order. Its methods must
// not wait, and must not call the worker: hand over to a goroutine. What they bring about is told by [Worker.Notified],
// [Worker.Drained] and the methods of [Write]. The first call may come before [StartWorker] returns.
//
// What is written, and when, is the engine's to say: see [Target].
//
// A worker without a data plane gets its completions from the service alone.
type DataPlane interface {
	// AddPeer: a process of the other side fits. Connect, and warm the connection up: peers in Python say Hello and wait
	// for one, a NIXL notification with a pb.Notification.
	AddPeer(peer Peer)
	// DropPeer: it is gone or was replaced. End its handles, and forget it.
	DropPeer(instanceID string)
	// Cancel: hand over no further piece of the writes in a room. Each [Write] is still to be ended.
	Cancel(room int64)
	// Notify sends a NIXL notification to a process, best effort: who does not get it hears from the service. The payload
	// is sent as it is, and given as it is to Worker.Notified there.
	Notify(instanceID string, payload []byte)
	// Drain: hand all notifications that have arrived to Worker.Notified, then call Worker.Drained with the token.
	Drain(token uint64)
}

// action is what the protocol wants done: by the data plane, or, as fetchLinks, by the session.
type action interface{}

type (
	fetchLinks struct{ change *pb.PeerChange }
	addPeer    struct{ peer Peer }
	dropPeer   struct{ instanceID string }
	cancel     struct{ room int64 }
	notify     struct {
		instanceID string
		payload    []byte
	}
	drain struct{ token uint64 }
)

// perform hands an action to a data plane.
func perform(wanted action, plane DataPlane) {
	switch wanted := wanted.(type) {
	case addPeer:
		plane.AddPeer(wanted.peer)
	case dropPeer:
		plane.DropPeer(wanted.instanceID)
	case cancel:
		plane.Cancel(wanted.room)
	case notify:
		plane.Notify(wanted.instanceID, wanted.payload)
	case drain:
		plane.Drain(wanted.token)
	}
}
