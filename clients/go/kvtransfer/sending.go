package kvtransfer

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// notificationPrefix begins every NIXL notification that is ours.
const notificationPrefix = "KVT1"

// senderSide is what a prefill worker knows of its room.
type senderSide struct {
	tokens    int32
	targets   []*target // in the order of their offers
	confirmed int64     // registration under which the service confirmed the room
	drained   bool      // no write ended otherwise than with nothing in flight
	back      bool      // its pages went back to the engine
}

// target is one receiver's offer, and how much of it is served.
type target struct {
	peer        *pb.Peer
	offerID     uint64
	destination *pb.Destination
	writing     int   // writes that have not ended
	moved       int64 // bytes written
	completion  *pb.Completion
}

func (s *senderSide) moved() int64 {
	var bytes int64
	for _, target := range s.targets {
		bytes += target.moved
	}
	return bytes
}

func (s *senderSide) writing() int {
	writing := 0
	for _, target := range s.targets {
		writing += target.writing
	}
	return writing
}

func (s *senderSide) completions() []*pb.Completion {
	var done []*pb.Completion
	for _, target := range s.targets {
		if target.completion != nil {
			done = append(done, target.completion)
		}
	}
	return done
}

// served: every receiver has its completion.
func (s *senderSide) served() bool {
	return len(s.completions()) == len(s.targets)
}

// takeOffers keeps each receiver's offer. Returns what does not fit, if anything.
func (s *senderSide) takeOffers(offers []*pb.Offer) string {
	for _, offer := range offers {
		for _, receiver := range offer.GetReceivers() {
			if offer.GetDestination().GetTokens() != s.tokens {
				return fmt.Sprintf("%s offered %d tokens, the sender has %d",
					receiver.GetReceiver().GetWorkerId(), offer.GetDestination().GetTokens(), s.tokens)
			}
			if s.target(receiver.GetReceiver().GetWorkerId()) == nil {
				s.targets = append(s.targets, &target{
					peer:        receiver.GetReceiver(),
					offerID:     receiver.GetOfferId(),
					destination: offer.GetDestination(),
				})
			}
		}
	}
	return ""
}

func (s *senderSide) target(workerID string) *target {
	for _, target := range s.targets {
		if target.peer.GetWorkerId() == workerID {
			return target
		}
	}
	return nil
}

// complete makes the completion of a target's whole offer.
func (t *target) complete(r *room, workerID string) {
	t.completion = &pb.Completion{
		Room:         r.Room,
		Sender:       workerID,
		Receiver:     t.peer.GetWorkerId(),
		OfferId:      t.offerID,
		SenderJoinId: r.joinID,
		Bytes:        t.moved,
	}
	for _, group := range t.destination.GetGroups() {
		if count := len(group.GetIndices()); count > 0 {
			t.completion.Groups = append(t.completion.Groups, &pb.GroupRanges{
				Group:  group.GetGroup(),
				Ranges: []*pb.Range{{First: 0, Count: int32(count)}},
			})
		}
	}
}

// notification is the payload that tells a receiver of a completion.
func notification(completion *pb.Completion) []byte {
	told := &pb.Notification{Body: &pb.Notification_Completion{Completion: completion}}
	payload, err := proto.Marshal(told)
	if err != nil {
		panic(err) // strings of it came from the wire, so they are valid UTF-8
	}
	return append([]byte(notificationPrefix), payload...)
}
