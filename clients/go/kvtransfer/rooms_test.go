package kvtransfer

import (
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// The protocol itself, with a made-up clock and a service that says what the test has it say.

const lease = 15 * time.Second

func enrolled(at time.Duration) *rooms {
	r := newRooms(&pb.Layout{}, defaultPolicy)
	r.registered(granted(1), at)
	return r
}

func granted(epoch int64) *pb.RegisterWorkerResponse {
	return &pb.RegisterWorkerResponse{
		Worker: &pb.WorkerRef{WorkerId: "p", Epoch: epoch}, LeaseTtl: durationpb.New(lease), BirthEpoch: 1,
	}
}

func sending(r *rooms, number int64) *room {
	joined := &room{Join: Join{Room: number}, joinID: 100 + uint64(number), sender: &senderSide{tokens: 20, drained: true}}
	r.open(joined, 0)
	return joined
}

// served has a room's receiver offer, and the service let the sender write.
func served(r *rooms, joined *room) *target {
	receiver := &pb.Offerer{Receiver: &pb.Peer{WorkerId: "d", InstanceId: "i"}, OfferId: 7}
	r.received(&pb.SessionResponse{
		Offers: []*pb.RoomOffers{{Room: joined.Room, Offers: []*pb.Offer{{
			Receivers: []*pb.Offerer{receiver}, Destination: &pb.Destination{Tokens: 20},
		}}}},
		Rooms: []*pb.RoomUpdate{{
			Room: joined.Room, JoinId: joined.joinID, Poll: pollWaiting, OwnPoll: pollWaiting, Confirmed: true,
		}},
	}, 0)
	return joined.sender.targets[0]
}

func joinsOf(batch *pb.SessionRequest) []int64 {
	var numbers []int64
	for _, join := range batch.GetJoins() {
		numbers = append(numbers, join.GetRoom())
	}
	return numbers
}

func TestTheFullestListOfRoomsFitsOneMessage(t *testing.T) {
	const rank = "/dp4095/pp4095/tp4095"
	r := enrolled(0)
	r.workerID = strings.Repeat("p", 63) + rank
	them := &pb.Peer{WorkerId: strings.Repeat("d", 63) + rank, InstanceId: newUUID()}
	for number := range int64(maxRooms) {
		joined := sending(r, math.MaxInt64-number)
		one := &target{peer: them, offerID: math.MaxUint64, destination: &pb.Destination{Tokens: 20}}
		joined.sender.targets = []*target{one}
		if number%2 == 0 {
			one.complete(joined, r.workerID)
			joined.advance(pollSuccess)
		} else {
			r.abort(joined, strings.Repeat("\U0001f4a9", maxFailureMessage))
		}
		joined.roomPoll = joined.poll
	}
	for r.out.pending() {
		r.out.take(0)
	}
	list := &pb.RegisterWorkerRequest{Rooms: r.states(0)}
	if size := proto.Size(list); len(list.GetRooms()) != maxRooms || size > 3<<20 {
		t.Errorf("%d rooms take %d bytes", len(list.GetRooms()), size)
	}
}

func TestWhatFailedFirstIsNeverSeenToSucceed(t *testing.T) {
	r := enrolled(0)
	joined := receiving(r, 1)
	r.received(&pb.SessionResponse{Rooms: []*pb.RoomUpdate{{
		Room: 1, JoinId: joined.joinID, Poll: pollFailed, OwnPoll: pollWaiting,
		Failure: &pb.Failure{Reason: pb.FailureReason_FAILURE_REASON_ABORTED},
	}}}, 0)
	r.notified(notification(completionFor(joined)))
	if joined.poll != pollSuccess || joined.shown() != pollFailed {
		t.Errorf("its own part is %s, and it shows %s", joined.poll, joined.shown())
	}
}

func TestARoomThatIsGivenUpBeforeItsJoinWasSentIsGivenUpForBoth(t *testing.T) {
	r := enrolled(0)
	joined := &room{Join: Join{Room: 1}, joinID: 101, receiver: &receiverSide{}}
	r.open(joined, 0)
	r.close(joined)
	if batch := r.out.take(0); len(batch.GetJoins()) != 1 || len(batch.GetCleanups()) != 1 {
		t.Errorf("told %v", batch)
	}
	if err := r.offer(joined, Destination{Tokens: 20}); err == nil {
		t.Error("a closed room takes an offer")
	}
	unheard := newRooms(&pb.Layout{}, defaultPolicy)
	early := sending(unheard, 1)
	unheard.close(early)
	if len(unheard.held) != 0 || len(unheard.takeReleased()) != 1 {
		t.Error("a room that nobody can have heard of is held")
	}
}

func TestTheCoreIsPure(t *testing.T) {
	allowed := []string{
		"cmp", "fmt", "log/slog", "maps", "regexp", "slices", "strings", "time", "unicode/utf8", "google.golang.org/protobuf/proto",
		"google.golang.org/protobuf/reflect/protoreflect",
		"google.golang.org/protobuf/types/known/durationpb", "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1",
	}
	core := []string{
		"rooms.go", "news.go", "room.go", "sending.go", "receiving.go", "destination.go", "outgoing.go", "roster.go",
		"actions.go", "texts.go",
	}
	for _, name := range core {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			if path, _ := strconv.Unquote(imported.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		for _, unresolved := range file.Unresolved {
			if unresolved.Name == "boottime" {
				t.Errorf("%s looks at the clock", name)
			}
		}
	}
}

func TestALeaseCountsFromWhenItsMessageWasSent(t *testing.T) {
	r := enrolled(0)
	joined := sending(r, 1)
	target := served(r, joined)
	r.out.take(5 * time.Second)
	r.out.take(10 * time.Second)
	answered := &pb.SessionResponse{AppliedBatch: 1, LeaseTtl: durationpb.New(lease)}
	r.received(answered, 12*time.Second) // late: what counts is the batch that it answers
	if !r.begin(joined, target, 5*time.Second+lease-defaultPolicy.fenceMargin-1) {
		t.Error("fenced too early")
	}
	if r.begin(joined, target, 5*time.Second+lease-defaultPolicy.fenceMargin) {
		t.Error("writes after the fence")
	}
	r.received(&pb.SessionResponse{AppliedBatch: 2, LeaseTtl: durationpb.New(lease)}, 19*time.Second)
	if !r.fenced {
		t.Error("a late answer lifted the fence")
	}
}

func TestAfterRegisteringAgainARoomIsConfirmedFirst(t *testing.T) {
	r := enrolled(0)
	joined := sending(r, 1)
	target := served(r, joined)
	r.registered(granted(2), time.Minute)
	if r.begin(joined, target, time.Minute) {
		t.Error("writes in a room that the service has not confirmed since")
	}
	served(r, joined)
	if !r.begin(joined, target, time.Minute) {
		t.Error("does not write in a confirmed room")
	}
}

func TestWhatWasNotAppliedIsSentAgainFirst(t *testing.T) {
	r := enrolled(0)
	for number := range int64(3) {
		sending(r, number+1)
		r.out.take(0)
	}
	r.received(&pb.SessionResponse{AppliedBatch: 1}, 0)
	sending(r, 4)
	r.streamOpened()
	batch := r.out.take(0)
	if got := joinsOf(batch); batch.GetBatch() != 1 || !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("batch %d has %v", batch.GetBatch(), got)
	}
}

func TestABatchIsBounded(t *testing.T) {
	r := enrolled(0)
	for number := range int64(maxBatchItems + 1) {
		sending(r, number+1)
	}
	first := sending(r, 5000)
	r.abort(first, "")
	if batch := r.out.take(0); len(batch.GetJoins()) != maxBatchItems || len(batch.GetProgress()) != 0 {
		t.Errorf("%d joins and %d reports", len(batch.GetJoins()), len(batch.GetProgress()))
	}
	if batch := r.out.take(0); len(batch.GetJoins()) != 2 || len(batch.GetProgress()) != 1 {
		t.Errorf("%d joins and %d reports", len(batch.GetJoins()), len(batch.GetProgress()))
	}
}

func TestTheListHasEveryJoinThatWasSent(t *testing.T) {
	r := enrolled(0)
	sending(r, 1)
	ended := sending(r, 2)
	r.out.take(0)
	sending(r, 3) // not sent yet
	r.abort(ended, "enough")
	states := r.states(time.Second)
	if len(states) != 2 || states[0].GetRoom() != 1 || states[1].GetPoll() != pollFailed ||
		states[1].GetFailure().GetMessage() != "enough" {
		t.Errorf("told %v", states)
	}
	if left := states[0].GetTimeLeft().AsDuration(); left != defaultPolicy.giveUp-time.Second {
		t.Errorf("time left %s", left)
	}
	r.close(ended)
	if got := len(r.states(0)); got != 2 {
		t.Errorf("a cleanup that nobody acknowledged left %d", got)
	}
	r.received(&pb.SessionResponse{Releases: []*pb.Release{{
		Room: 2, JoinId: ended.joinID, State: pb.Release_STATE_FREE,
	}}}, 0)
	if got := len(r.states(0)); got != 1 {
		t.Errorf("an acknowledged cleanup left %d", got)
	}
}

// TestACleanupWhoseReleaseWasLostIsAskedAboutAgain: the answer to a batch may come before the last of its news.
func TestACleanupWhoseReleaseWasLostIsAskedAboutAgain(t *testing.T) {
	r := enrolled(0)
	for _, joined := range []*room{sending(r, 1), receiving(r, 2)} {
		r.close(joined)
	}
	r.received(&pb.SessionResponse{AppliedBatch: r.out.take(0).GetBatch()}, 0)
	r.streamOpened()
	if again := r.out.take(0).GetCleanups(); len(again) != 2 {
		t.Errorf("asked about %v", again)
	}
}

func TestAJoinThatIsNotHeldIsCleanedUp(t *testing.T) {
	r := enrolled(0)
	r.received(&pb.SessionResponse{Rooms: []*pb.RoomUpdate{{Room: 1, JoinId: 9, Poll: pollBootstrap}}}, 0)
	cleanups := r.out.take(0).GetCleanups()
	if len(cleanups) != 1 || cleanups[0].GetJoinId() != 9 || !cleanups[0].GetDrained() {
		t.Errorf("answered with %v", cleanups)
	}
}

func receiving(r *rooms, number int64) *room {
	joined := &room{Join: Join{Room: number}, joinID: 100 + uint64(number), receiver: &receiverSide{}}
	r.open(joined, 0)
	if err := r.offer(joined, Destination{Tokens: 20}); err != nil {
		panic(err)
	}
	r.out.take(0)
	r.received(&pb.SessionResponse{Rooms: []*pb.RoomUpdate{{
		Room: number, JoinId: joined.joinID, Poll: pollWaiting, OwnPoll: pollWaiting,
		Senders: []*pb.Peer{{WorkerId: "s", InstanceId: "i"}},
	}}}, 0)
	return joined
}

func asked(r *rooms, joined *room) {
	r.received(&pb.SessionResponse{Rooms: []*pb.RoomUpdate{{
		Room: joined.Room, JoinId: joined.joinID, Poll: pollWaiting, OwnPoll: pollWaiting,
		Failure: &pb.Failure{Reason: pb.FailureReason_FAILURE_REASON_ABORTED},
	}}}, 0)
}

func completionFor(joined *room) *pb.Completion {
	return &pb.Completion{Room: joined.Room, Sender: "s", Receiver: "p", OfferId: joined.joinID}
}

func TestWhoIsAskedToEndTakesWhatHasArrivedFirst(t *testing.T) {
	r := enrolled(0)
	holds, lacks := receiving(r, 1), receiving(r, 2)
	asked(r, holds)
	asked(r, lacks)
	if holds.shown() != pollWaiting {
		t.Errorf("answered before it looked: %s", holds.shown())
	}
	r.notified(notification(completionFor(holds)))
	for _, wanted := range r.takeActions() {
		if wanted, ok := wanted.(drain); ok {
			r.drained(wanted.token)
		}
	}
	if holds.shown() != pollSuccess || lacks.shown() != pollFailed {
		t.Errorf("answered %s and %s", holds.shown(), lacks.shown())
	}
}

func TestACompletionOfAnotherOfferIsDropped(t *testing.T) {
	r := enrolled(0)
	joined := receiving(r, 1)
	other := completionFor(joined)
	other.OfferId++
	r.notified(notification(other))
	r.notified([]byte("KVT1 is how ours begin"))
	r.notified([]byte("somebody else's"))
	if joined.shown() != pollWaiting {
		t.Errorf("the room is %s", joined.shown())
	}
}

func TestPagesSettleAfterABadEnd(t *testing.T) {
	r := enrolled(0)
	joined := receiving(r, 1)
	r.close(joined)
	r.received(&pb.SessionResponse{Releases: []*pb.Release{{
		Room: 1, JoinId: joined.joinID, State: pb.Release_STATE_FREE,
	}}}, time.Second)
	r.tick(time.Second + defaultPolicy.settle - 1)
	if got := r.takeReleased(); len(got) != 0 {
		t.Errorf("came back at once: %v", got)
	}
	r.tick(time.Second + defaultPolicy.settle)
	if got := r.takeReleased(); len(got) != 1 || len(r.held) != 0 {
		t.Errorf("came back: %v", got)
	}
}

func TestUnknownNeverMeansFree(t *testing.T) {
	r := enrolled(0)
	joined := receiving(r, 1)
	r.close(joined)
	for _, state := range []pb.Release_State{pb.Release_STATE_UNKNOWN, pb.Release_STATE_WAITING, 99} {
		r.received(&pb.SessionResponse{Releases: []*pb.Release{{Room: 1, JoinId: joined.joinID, State: state}}}, 0)
		r.tick(time.Hour)
		if got := r.takeReleased(); len(got) != 0 {
			t.Errorf("%s brought pages back", state)
		}
	}
	r.out.take(0)
	r.streamOpened()
	if got := r.out.take(0).GetCleanups(); len(got) != 1 {
		t.Errorf("on a new stream it asks again: %v", got)
	}
}

func TestPagesOfACompletedJoinThatIsNotKnownAnyMoreAreFree(t *testing.T) {
	r := enrolled(0)
	joined := receiving(r, 1)
	r.notified(notification(completionFor(joined)))
	r.close(joined)
	r.received(&pb.SessionResponse{Releases: []*pb.Release{{
		Room: 1, JoinId: joined.joinID, State: pb.Release_STATE_UNKNOWN,
	}}}, 0)
	if got := r.takeReleased(); len(got) != 1 || got[0].Presumed {
		t.Errorf("came back: %v", got)
	}
}

func TestAShortLeaseIsFencedAThirdEarlier(t *testing.T) {
	r := newRooms(&pb.Layout{}, defaultPolicy)
	short := granted(1)
	short.LeaseTtl = durationpb.New(1500 * time.Millisecond)
	r.registered(short, 0)
	r.tick(999 * time.Millisecond)
	if r.fenced {
		t.Error("fenced too early")
	}
	r.tick(time.Second)
	if !r.fenced {
		t.Error("not fenced")
	}
}

func TestWhatKeepsAnEngineWaitingIsInTheLog(t *testing.T) {
	var said strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	defer slog.SetDefault(before)
	r := enrolled(0)
	joined := receiving(r, 1)
	r.close(joined)
	for range 2 {
		r.received(&pb.SessionResponse{
			Peers: []*pb.PeerChange{{
				Peer: &pb.Peer{WorkerId: "d", InstanceId: "i"}, Kind: pb.PeerChange_KIND_UNFIT, Message: "page_tokens is 16 and 32",
			}},
			Releases: []*pb.Release{{
				Room: 1, JoinId: joined.joinID, State: pb.Release_STATE_QUARANTINED, WaitingFor: []string{"s"},
			}},
		}, 0)
	}
	for _, once := range []string{"page_tokens is 16 and 32", "pages stay held"} {
		if got := strings.Count(said.String(), once); got != 1 {
			t.Errorf("%q is said %d times", once, got)
		}
	}
	if got := r.takeActions(); len(got) != 0 || len(r.roster.known()) != 0 {
		t.Errorf("who does not fit is met: %v", got)
	}
}

func TestAPeerThatWasReplacedUnheardIsDropped(t *testing.T) {
	r := enrolled(0)
	ready := func(instance string) *pb.PeerChange {
		return &pb.PeerChange{
			Peer: &pb.Peer{WorkerId: "d", InstanceId: instance}, Kind: pb.PeerChange_KIND_READY, EngineId: "d",
		}
	}
	change := ready("former")
	r.received(&pb.SessionResponse{Peers: []*pb.PeerChange{change}}, 0)
	r.roster.linksFetched(change, &pb.GetLinksResponse{Peers: []*pb.Worker{{InstanceId: "former"}}})
	r.received(&pb.SessionResponse{Peers: []*pb.PeerChange{ready("later")}}, 0)
	var dropped []string
	for _, wanted := range r.takeActions() {
		if wanted, ok := wanted.(dropPeer); ok {
			dropped = append(dropped, wanted.instanceID)
		}
	}
	if !slices.Equal(dropped, []string{"former"}) {
		t.Errorf("dropped %v", dropped)
	}
	r.roster.failed("later", 0)
	r.tick(retryPeerFirst)
	if actions := r.takeActions(); len(actions) != 1 {
		t.Errorf("after a failure it does not ask again: %v", actions)
	}
}

func TestATransferThatTheServiceForgotEndsByItself(t *testing.T) {
	r := enrolled(0)
	joined := sending(r, 1)
	r.tick(defaultPolicy.giveUp)
	if joined.failure == nil || joined.failure.Reason != pb.FailureReason_FAILURE_REASON_TRANSFER_TIMEOUT {
		t.Errorf("ended %v", joined.failure)
	}
}

func TestOffersOfAnotherLengthFailTheRoom(t *testing.T) {
	r := enrolled(0)
	joined := sending(r, 1)
	joined.sender.tokens = 21
	r.received(&pb.SessionResponse{Offers: []*pb.RoomOffers{{Room: 1, Offers: []*pb.Offer{{
		Receivers: []*pb.Offerer{{Receiver: &pb.Peer{WorkerId: "d"}}}, Destination: &pb.Destination{Tokens: 20},
	}}}}}, 0)
	if joined.failure == nil || joined.failure.Message != "d offered 20 tokens, the sender has 21" {
		t.Errorf("ended %v", joined.failure)
	}
}

func TestARefusedCleanupOfASenderIsTheEnd(t *testing.T) {
	r := enrolled(0)
	joined := sending(r, 1)
	r.out.take(0)
	r.close(joined)
	r.received(&pb.SessionResponse{Errors: []*pb.ItemError{{
		Kind: pb.ItemError_KIND_CLEANUP, Room: 1, Error: &spb.Status{Message: "no"},
	}}}, 0)
	if len(r.held) != 0 {
		t.Error("it is still held")
	}
}
