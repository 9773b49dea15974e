package kvtransfer

import (
	"fmt"
	"slices"
	"time"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// receiverSide is what a decode worker knows of its room.
type receiverSide struct {
	destination *pb.Destination
	offered     Destination
	senders     []*pb.Peer       // once all are known
	completions []*pb.Completion // one of each sender; from whom is checked once the senders are known
	draining    bool             // asked to end: what has arrived is being consumed
	free        bool             // the service said so, and a settle time runs until freeAt
	freeAt      time.Duration
	held        bool // the log has said that its pages wait for proof
}

// take keeps a completion of this join. False if it is of another offer or room, or no news.
func (r *room) take(completion *pb.Completion, workerID string) bool {
	side := r.receiver
	ours := completion.GetRoom() == r.Room && completion.GetReceiver() == workerID &&
		completion.GetOfferId() == r.joinID
	if !ours || Final(r.poll) || side.completionOf(completion.GetSender()) != nil {
		return false
	}
	side.completions = append(side.completions, completion)
	return true
}

func (s *receiverSide) completionOf(sender string) *pb.Completion {
	at := slices.IndexFunc(s.completions, func(c *pb.Completion) bool { return c.GetSender() == sender })
	if at < 0 {
		return nil
	}
	return s.completions[at]
}

// holdsAll: a completion of each sender is there.
func (s *receiverSide) holdsAll() bool {
	for _, sender := range s.senders {
		if s.completionOf(sender.GetWorkerId()) == nil {
			return false
		}
	}
	return len(s.senders) > 0
}

// uncovered returns the first sender whose completion does not cover the offer, and why; "" if all do. Moved tells
// which groups a sender moves; false if that is not known, and then it is to be all.
func (s *receiverSide) uncovered(moved func(instance string) (map[string]bool, bool)) (sender, problem string) {
	for _, peer := range s.senders {
		groups, known := moved(peer.GetInstanceId())
		completion := s.completionOf(peer.GetWorkerId())
		for _, wanted := range s.destination.GetGroups() {
			if known && !groups[wanted.GetGroup()] {
				continue
			}
			if covered(completion, wanted.GetGroup()) != len(wanted.GetIndices()) {
				return peer.GetWorkerId(), fmt.Sprintf(
					"group %s: what was written does not cover the %d items", wanted.GetGroup(), len(wanted.GetIndices()))
			}
		}
	}
	return "", ""
}

// covered returns how many positions of a group's list, from the first on, a completion covers once each; -1 if it
// leaves any out or names any twice.
func covered(completion *pb.Completion, group string) int {
	position := 0
	for _, written := range completion.GetGroups() {
		if written.GetGroup() != group {
			continue
		}
		for _, span := range written.GetRanges() {
			if int(span.GetFirst()) != position || span.GetCount() < 1 {
				return -1
			}
			position += int(span.GetCount())
		}
	}
	return position
}
