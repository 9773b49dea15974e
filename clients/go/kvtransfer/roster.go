package kvtransfer

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// How long before a peer whose links could not be fetched is asked about again: the first time, and at most.
const (
	retryPeerFirst = time.Second
	retryPeerMost  = 30 * time.Second
)

// Peer is a process of the other side that a worker has links with.
type Peer struct {
	WorkerID   string
	InstanceID string
	EngineID   string
	// Layout is the memory it lends.
	Layout *pb.Layout
	// NIXLMetadata is what its get_agent_metadata() returned: it grants write access to that memory.
	NIXLMetadata []byte
	// Links are those between the worker and this peer, either way.
	Links []*pb.Link
}

type peerState struct {
	change     *pb.PeerChange
	peer       *Peer // once its links are known
	wantsRetry bool
	retryAt    time.Duration
	retryAfter time.Duration
}

// roster knows the peers by instance.
type roster struct {
	peers map[string]*peerState
	emit  func(action)
}

func (r *roster) changed(change *pb.PeerChange) {
	switch change.GetKind() {
	case pb.PeerChange_KIND_GONE:
		r.drop(change.GetPeer().GetInstanceId())
	case pb.PeerChange_KIND_READY, pb.PeerChange_KIND_DRAINING: // its rooms go on
		if r.enter(change) {
			r.emit(fetchLinks{change})
		}
	case pb.PeerChange_KIND_UNFIT:
		if r.enter(change) {
			slog.Warn("kvtransfer: an engine does not fit", "engine", change.GetEngineId(), "cause", change.GetMessage())
		}
	}
}

// enter keeps who is new here; false if it is not.
func (r *roster) enter(change *pb.PeerChange) bool {
	instance := change.GetPeer().GetInstanceId()
	if _, known := r.peers[instance]; known {
		return false
	}
	// Whoever had the rank before is gone, though its end may have been told while nobody listened.
	for other, state := range r.peers {
		if state.change.GetPeer().GetWorkerId() == change.GetPeer().GetWorkerId() {
			r.drop(other)
		}
	}
	r.peers[instance] = &peerState{change: change, retryAfter: retryPeerFirst}
	return true
}

func (r *roster) drop(instance string) {
	if _, known := r.peers[instance]; known {
		delete(r.peers, instance)
		r.emit(dropPeer{instance})
	}
}

// linksFetched takes the answer to fetchLinks.
func (r *roster) linksFetched(change *pb.PeerChange, answer *pb.GetLinksResponse) {
	state, known := r.peers[change.GetPeer().GetInstanceId()]
	if !known {
		return
	}
	for _, worker := range answer.GetPeers() {
		if worker.GetInstanceId() != change.GetPeer().GetInstanceId() {
			continue
		}
		state.peer = &Peer{
			WorkerID:     worker.GetRef().GetWorkerId(),
			InstanceID:   worker.GetInstanceId(),
			EngineID:     change.GetEngineId(),
			Layout:       worker.GetLayout(),
			NIXLMetadata: worker.GetNixlMetadata(),
		}
		for _, link := range answer.GetLinks() {
			if proto.Equal(link.GetSender(), change.GetPeer()) || proto.Equal(link.GetReceiver(), change.GetPeer()) {
				state.peer.Links = append(state.peer.Links, link)
			}
		}
		r.emit(addPeer{*state.peer})
	}
}

// failed: the links could not be fetched. They are asked for later, unless the peer is gone by then.
func (r *roster) failed(instance string, now time.Duration) {
	if state, known := r.peers[instance]; known {
		state.wantsRetry, state.retryAt = true, now+state.retryAfter
		state.retryAfter = min(2*state.retryAfter, retryPeerMost)
	}
}

func (r *roster) tick(now time.Duration) {
	for _, instance := range slices.Sorted(maps.Keys(r.peers)) {
		if state := r.peers[instance]; state.wantsRetry && now >= state.retryAt {
			state.wantsRetry = false
			r.emit(fetchLinks{state.change})
		}
	}
}

// known returns the peers whose links are known, ordered by worker.
func (r *roster) known() []Peer {
	var found []Peer
	for _, state := range r.peers {
		if state.peer != nil {
			found = append(found, *state.peer)
		}
	}
	slices.SortFunc(found, func(a, b Peer) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
	return found
}

// movedGroups returns the groups of which something moves along the links with a process; false if they are not known.
func (r *roster) movedGroups(instance string) (map[string]bool, bool) {
	state, known := r.peers[instance]
	if !known || state.peer == nil {
		return nil, false
	}
	groups := map[string]bool{}
	for _, link := range state.peer.Links {
		for _, span := range link.GetSpans() {
			groups[span.GetGroup()] = true
		}
	}
	return groups, true
}
