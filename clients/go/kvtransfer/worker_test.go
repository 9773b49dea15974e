package kvtransfer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const (
	failed  = pb.KVPoll_KV_POLL_FAILED
	waiting = pb.KVPoll_KV_POLL_WAITING_FOR_INPUT
	success = pb.KVPoll_KV_POLL_SUCCESS
)

// start starts a worker that ends with the test.
func start(
	t *testing.T, client *kvtransfer.Client, said *pb.RegisterWorkerRequest, plane kvtransfer.DataPlane,
) *kvtransfer.Worker {
	t.Helper()
	worker := must[*kvtransfer.Worker](t)(kvtransfer.StartWorker(client, said, plane))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit/10)
		defer cancel()
		_ = worker.Close(ctx) // of tests that closed it before, or leave pages behind
	})
	return worker
}

// startPair starts a sender and a receiver, each an engine, which fit each other and no one else.
func startPair(
	t *testing.T, client *kvtransfer.Client, ttl float64,
) (prefill *kvtransfer.Worker, decode *kvtransfer.Worker, engine string) {
	t.Helper()
	model, engine := unique("model"), unique("p")
	said := [2]*pb.RegisterWorkerRequest{
		registration(engine, pb.Role_ROLE_PREFILL, model), registration(unique("d"), pb.Role_ROLE_DECODE, model),
	}
	var workers [2]*kvtransfer.Worker
	for at, one := range said {
		one.LeaseTtl = seconds(ttl)
		workers[at] = start(t, client, one, nil)
	}
	for _, worker := range workers {
		await(t, worker, "ready with a peer", func() bool { return worker.Open() && len(worker.Peers()) == 1 })
	}
	return workers[0], workers[1], engine
}

func await(t *testing.T, worker *kvtransfer.Worker, what string, condition func() bool) {
	t.Helper()
	if err := worker.Wait(inTime(t), condition); err != nil {
		t.Fatalf("not %s: %v", what, err)
	}
}

// meet joins both sides to a room, with an offer, and waits until the sender may write.
func meet(
	t *testing.T, prefill, decode *kvtransfer.Worker, engine string,
) (*kvtransfer.Sender, *kvtransfer.Receiver) {
	t.Helper()
	room := newRoom()
	receiver := must[*kvtransfer.Receiver](t)(decode.Receiver(kvtransfer.Join{Room: room, PeerEngine: engine}))
	if err := receiver.Offer(offered()); err != nil {
		t.Fatal(err)
	}
	sender := must[*kvtransfer.Sender](t)(prefill.Sender(kvtransfer.Join{Room: room}, 20))
	await(t, prefill, "waiting for input", func() bool { return sender.Poll() == waiting })
	return sender, receiver
}

// write serves every target.
func write(t *testing.T, sender *kvtransfer.Sender) {
	t.Helper()
	for _, target := range sender.Targets() {
		piece, ok := target.Begin()
		if !ok {
			t.Fatalf("nothing may be written: %s, %v", sender.Poll(), sender.Failure())
		}
		piece.Done(100)
		if err := target.Complete(); err != nil {
			t.Fatal(err)
		}
	}
}

type ender interface {
	Wait(context.Context) (pb.KVPoll, error)
	Failure() *kvtransfer.Failure
}

func ends(t *testing.T, room ender, want pb.KVPoll) {
	t.Helper()
	if got := must[pb.KVPoll](t)(room.Wait(inTime(t))); got != want {
		t.Fatalf("ended %s, %v", got, room.Failure())
	}
}

// back waits for the pages of rooms.
func back(t *testing.T, worker *kvtransfer.Worker, rooms ...int64) []kvtransfer.Released {
	t.Helper()
	var released []kvtransfer.Released
	await(t, worker, "released", func() bool {
		released = append(released, worker.Released()...)
		return len(released) >= len(rooms)
	})
	for _, one := range released {
		if !slices.Contains(rooms, one.Room) {
			t.Errorf("room %d came back, of %v", one.Room, rooms)
		}
	}
	return released
}

func TestAWholeLifeBetweenTwoWorkers(t *testing.T) {
	client := dial(t)
	prefill, decode, engine := startPair(t, client, 15)
	if links := prefill.Peers()[0].Links; len(links) != 1 || links[0].GetReceiver().GetInstanceId() != decode.InstanceID() {
		t.Errorf("the sender's links are %v", links)
	}
	sender, receiver := meet(t, prefill, decode, engine)
	if target := sender.Targets()[0]; target.Destination().GetGroups()[0].GetIndices()[1] != 9 {
		t.Errorf("the sender was told %v", target.Destination())
	}
	write(t, sender)
	ends(t, sender, success)
	ends(t, receiver, success)
	await(t, prefill, "told of the verdict", func() bool { return sender.RoomPoll() == success })

	sender.Close()
	if got := back(t, prefill, sender.Room()); len(got[0].Pages) != 0 {
		t.Errorf("the sender's pages are its own: %v", got)
	}
	if got := polls(t, client, sender.Room())[decode.Ref().GetWorkerId()]; got != success {
		t.Errorf("one's cleanup hid success from another: %s", got)
	}
	receiver.Close()
	got := back(t, decode, receiver.Room())[0]
	if !slices.Equal(got.Pages["kv"], []int32{3, 9}) || !maps.Equal(got.Slots, map[string]int32{"aux": 1}) || got.Presumed {
		t.Errorf("came back: %+v", got)
	}
	if release := receiver.Release(); release.GetState() != pb.Release_STATE_FREE {
		t.Errorf("the service said %v", release)
	}
}

func TestManyRoomsAtOnce(t *testing.T) {
	client := dial(t)
	prefill, decode, engine := startPair(t, client, 15)
	type transfer struct {
		sender   *kvtransfer.Sender
		receiver *kvtransfer.Receiver
	}
	ended := make(chan transfer)
	const rooms = 40
	for range rooms {
		go func() {
			var one transfer
			defer func() { ended <- one }() // also when it fails
			one.sender, one.receiver = meet(t, prefill, decode, engine)
			write(t, one.sender)
		}()
	}
	for range rooms {
		one := <-ended
		if t.Failed() {
			continue
		}
		ends(t, one.receiver, success)
		one.sender.Close()
		one.receiver.Close()
	}
	var numbers int
	await(t, decode, "released", func() bool { numbers += len(decode.Released()); return numbers == rooms })
}

func TestAnAbortEndsBothSides(t *testing.T) {
	client := dial(t)
	prefill, decode, engine := startPair(t, client, 15)
	sender, receiver := meet(t, prefill, decode, engine)
	must[[]kvtransfer.RoomResult](t)(client.Abort(inTime(t), "the caller hung up", sender.Room()))
	for _, room := range []ender{sender, receiver} {
		ends(t, room, failed)
		failure := room.Failure()
		if failure.Reason != pb.FailureReason_FAILURE_REASON_ABORTED || failure.Message != "the caller hung up" {
			t.Errorf("told %v", failure)
		}
	}
	if _, ok := sender.Targets()[0].Begin(); ok {
		t.Error("a room that ended may be written in")
	}
	sender.Close()
	receiver.Close()
	back(t, prefill, sender.Room())
	back(t, decode, receiver.Room())
}

func TestAReceiversAbortReachesTheSender(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	sender, receiver := meet(t, prefill, decode, engine)
	receiver.Abort("no pages left")
	ends(t, sender, failed)
	if failure := sender.Failure(); failure.Message != "no pages left" || failure.WorkerID != decode.Ref().GetWorkerId() {
		t.Errorf("told %+v", failure)
	}
}

func TestPagesWaitForAWriteThatIsUnderWay(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	sender, receiver := meet(t, prefill, decode, engine)
	piece, ok := sender.Targets()[0].Begin()
	if !ok {
		t.Fatal("nothing may be written")
	}
	receiver.Close()
	ends(t, sender, failed)
	sender.Close()
	await(t, decode, "told to wait", func() bool { return receiver.Release().GetState() == pb.Release_STATE_WAITING })
	if got := receiver.Release().GetWaitingFor(); !slices.Equal(got, []string{prefill.Ref().GetWorkerId()}) {
		t.Errorf("waiting for %v", got)
	}
	if got := len(prefill.Released()) + len(decode.Released()); got != 0 {
		t.Errorf("%d rooms came back under a write", got)
	}
	piece.Done(50)
	back(t, prefill, sender.Room())
	back(t, decode, receiver.Room())
}

func TestAWriteThatFailedFailsTheRoom(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	sender, receiver := meet(t, prefill, decode, engine)
	piece, _ := sender.Targets()[0].Begin()
	piece.Failed(10, pb.FailureReason_FAILURE_REASON_DISCONNECTED, "the connection was reset")
	ends(t, receiver, failed)
	failure := receiver.Failure()
	if failure.Reason != pb.FailureReason_FAILURE_REASON_DISCONNECTED || failure.WorkerID != decode.Ref().GetWorkerId() {
		t.Errorf("told %+v", failure)
	}
	sender.Close()
	receiver.Close()
	state := func() pb.Release_State { return receiver.Release().GetState() }
	await(t, decode, "told of its pages", func() bool { return state() != pb.Release_STATE_UNSPECIFIED })
	if state() == pb.Release_STATE_FREE {
		t.Error("pages are free though bytes may still land")
	}
}

func TestTheServicesRefusalFailsTheRoom(t *testing.T) {
	_, decode, _ := startPair(t, dial(t), 15)
	receiver := must[*kvtransfer.Receiver](t)(decode.Receiver(kvtransfer.Join{Room: newRoom(), PeerEngine: "nobody"}))
	if err := receiver.Offer(offered()); err != nil {
		t.Fatal(err)
	}
	ends(t, receiver, failed)
	if failure := receiver.Failure(); !errors.Is(failure.Refused, kvtransfer.ErrEngineNotFound) {
		t.Errorf("told %v", failure)
	}
	receiver.Close()
	if got := back(t, decode, receiver.Room()); !slices.Equal(got[0].Pages["kv"], []int32{3, 9}) {
		t.Errorf("came back: %v", got)
	}
}

func TestBadArgumentsAreRefusedInTheCall(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	receiver := must[*kvtransfer.Receiver](t)(decode.Receiver(kvtransfer.Join{Room: newRoom(), PeerEngine: engine}))
	offer := func(change func(*kvtransfer.Destination)) error {
		destination := offered()
		change(&destination)
		return receiver.Offer(destination)
	}
	pages := func(pages ...int32) error {
		return offer(func(d *kvtransfer.Destination) { d.Pages["kv"] = pages })
	}
	sender := func(room int64, tokens int32) error {
		_, err := prefill.Sender(kvtransfer.Join{Room: room}, tokens)
		return err
	}
	join := func(join kvtransfer.Join) error {
		join.Room = newRoom()
		_, err := prefill.Sender(join, 20)
		return err
	}
	for _, refused := range []struct {
		field string
		err   error
	}{
		{"tokens", offer(func(d *kvtransfer.Destination) { d.Tokens = 0 })},
		{"prefix_tokens", offer(func(d *kvtransfer.Destination) { d.PrefixTokens = 21 })},
		{"prefix_tokens", offer(func(d *kvtransfer.Destination) { d.PrefixTokens = 8 })},
		{"pages[kv]", pages(3)},
		{"pages[kv]", pages(3, 9, 10)},
		{"pages[kv]", pages(3, poolPages)},
		{"pages[kv]", pages(3, -1)},
		{"pages[kv]", pages(3, 3)},
		{"pages[aux]", offer(func(d *kvtransfer.Destination) { d.Pages["aux"] = []int32{1} })},
		{"slots[aux]", offer(func(d *kvtransfer.Destination) { d.Slots = nil })},
		{"slots[aux]", offer(func(d *kvtransfer.Destination) { d.Slots["aux"] = 8 })},
		{"slots[kv]", offer(func(d *kvtransfer.Destination) { d.Slots["kv"] = 1 })},
		{"room", sender(0, 20)},
		{"tokens", sender(newRoom(), 0)},
		{"role", func() error { _, err := decode.Sender(kvtransfer.Join{Room: newRoom()}, 20); return err }()},
		{"peer_engine", func() error { _, err := decode.Receiver(kvtransfer.Join{Room: newRoom()}); return err }()},
		{"peer_engine", join(kvtransfer.Join{PeerEngine: strings.Repeat("p", 5<<20)})},
		{"request_id", join(kvtransfer.Join{RequestID: strings.Repeat("r", 129)})},
		{"request_id", join(kvtransfer.Join{RequestID: "caf\xe9"})},
		{"traceparent", join(kvtransfer.Join{Traceparent: strings.Repeat("0", 5<<20)})},
		{"traceparent", join(kvtransfer.Join{Traceparent: "\xff"})},
		{"timeouts.total", join(kvtransfer.Join{Timeouts: &pb.Timeouts{Total: seconds(0)}})},
		{"timeouts.no_progress", join(kvtransfer.Join{Timeouts: &pb.Timeouts{NoProgress: seconds(1e6)}})},
	} {
		var failed *kvtransfer.Error
		if !errors.Is(refused.err, kvtransfer.ErrInvalidField) || !errors.As(refused.err, &failed) ||
			failed.Field != refused.field {
			t.Errorf("want %s refused, got %v", refused.field, refused.err)
		}
	}
	if err := receiver.Offer(offered()); err != nil {
		t.Errorf("a good offer after bad ones: %v", err)
	}
	if err := receiver.Offer(offered()); !errors.Is(err, kvtransfer.ErrInvalidField) {
		t.Errorf("a second offer: %v", err)
	}
	_, err := decode.Receiver(kvtransfer.Join{Room: receiver.Room(), PeerEngine: engine})
	if !errors.Is(err, kvtransfer.ErrRoomReused) {
		t.Errorf("a second join: %v", err)
	}
}

func TestAWorkerRegistersOnceTheServiceIsThere(t *testing.T) {
	dial(t)
	network := newProxy(t, target)
	network.cut()
	worker := start(t, dialTo(t, network.address()), registration(unique("p"), pb.Role_ROLE_PREFILL, "m"), nil)
	brief, cancel := context.WithTimeout(inTime(t), 100*time.Millisecond)
	defer cancel()
	if err := worker.Ready(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ready without a service: %v", err)
	}
	network.restore()
	if err := worker.Ready(inTime(t)); err != nil {
		t.Fatal(err)
	}
}

func TestABrokenStreamIsTakenUpWithWhatWasNotApplied(t *testing.T) {
	dial(t)
	network := newProxy(t, target)
	prefill, decode, engine := startPair(t, dialTo(t, network.address()), 15)
	sender, receiver := meet(t, prefill, decode, engine)
	epoch := prefill.Ref().GetEpoch()
	network.cut()
	await(t, prefill, "broken off", func() bool { return !prefill.Open() })
	write(t, sender) // the lease holds
	network.restore()
	ends(t, receiver, success)
	if prefill.Ref().GetEpoch() != epoch {
		t.Error("a short break took a new registration")
	}
}

func TestALapsedLeaseFencesAndRegistersAgainWithItsRooms(t *testing.T) {
	service := kvservicetest.Start(t)
	client := dialTo(t, service.Target)
	prefill, decode, engine := startPair(t, client, 3)
	sender, receiver := meet(t, prefill, decode, engine)
	epoch := prefill.Ref().GetEpoch()
	if err := service.Pause(); err != nil {
		t.Fatal(err)
	}
	await(t, prefill, "fenced", func() bool { return !prefill.Open() })
	if _, ok := sender.Targets()[0].Begin(); ok {
		t.Error("a fenced worker may write")
	}
	if err := service.Resume(); err != nil {
		t.Fatal(err)
	}
	await(t, prefill, "registered again", func() bool { return prefill.Open() && prefill.Ref().GetEpoch() > epoch })
	var piece *kvtransfer.Write
	await(t, prefill, "confirmed again", func() (ok bool) { piece, ok = sender.Targets()[0].Begin(); return ok })
	piece.Done(100)
	if err := sender.Targets()[0].Complete(); err != nil {
		t.Fatal(err)
	}
	ends(t, sender, success)
	ends(t, receiver, success)
}

func TestALeaseThatEndedAtTheServiceEndsItsRooms(t *testing.T) {
	service := kvservicetest.Start(t) // which remembers the room for longer than its workers are away
	network := newProxy(t, service.Target)
	prefill, decode, engine := startPair(t, dialTo(t, network.address()), 3)
	sender, receiver := meet(t, prefill, decode, engine)
	epoch := prefill.Ref().GetEpoch()
	network.cut()
	direct := dialTo(t, service.Target)
	for polls(t, direct, sender.Room())[decode.Ref().GetWorkerId()] != failed { // its grace is over
		time.Sleep(20 * time.Millisecond)
	}
	network.restore()
	ends(t, sender, failed)
	ends(t, receiver, failed)
	await(t, prefill, "registered again", func() bool { return prefill.Open() && prefill.Ref().GetEpoch() > epoch })
	if reason := sender.Failure().Reason; reason != pb.FailureReason_FAILURE_REASON_SESSION_LOST &&
		reason != pb.FailureReason_FAILURE_REASON_LEASE_EXPIRED {
		t.Errorf("told %v", sender.Failure())
	}
}

func TestAProcessBornLaterStopsTheFormer(t *testing.T) {
	client := dial(t)
	said := registration(unique("p"), pb.Role_ROLE_PREFILL, "m")
	former := start(t, client, said, nil)
	await(t, former, "ready", former.Open)
	room := must[*kvtransfer.Sender](t)(former.Sender(kvtransfer.Join{Room: newRoom()}, 20))
	said.InstanceId = ""
	later := start(t, client, said, nil)
	await(t, later, "ready", later.Open)
	if err := former.Wait(inTime(t), func() bool { return false }); !errors.Is(err, kvtransfer.ErrStaleEpoch) {
		t.Errorf("the former is told %v", err)
	}
	ends(t, room, failed)
	if _, err := former.Sender(kvtransfer.Join{Room: newRoom()}, 20); !errors.Is(err, kvtransfer.ErrStaleEpoch) {
		t.Errorf("it joins: %v", err)
	}
	if !later.Open() {
		t.Error("the later is not registered")
	}
}

func TestARegistrationThatIsNotAcceptable(t *testing.T) {
	client := dial(t)
	said := registration("Not An Engine", pb.Role_ROLE_PREFILL, "m")
	if err := start(t, client, said, nil).Ready(inTime(t)); !errors.Is(err, kvtransfer.ErrInvalidField) {
		t.Errorf("ready: %v", err)
	}
	large := func(said *pb.RegisterWorkerRequest) { said.Endpoint = strings.Repeat("e", 2<<20) }
	for field, change := range map[string]func(*pb.RegisterWorkerRequest){
		"role":                       func(said *pb.RegisterWorkerRequest) { said.Role = 0 },
		"layout":                     func(said *pb.RegisterWorkerRequest) { said.Layout = nil },
		"lease_ttl":                  func(said *pb.RegisterWorkerRequest) { said.LeaseTtl = seconds(-1) },
		"birth_epoch":                func(said *pb.RegisterWorkerRequest) { said.BirthEpoch = 1 },
		"registration":               func(said *pb.RegisterWorkerRequest) { said.Labels = map[string]string{"zone": "\xff"} },
		"registration that is large": large,
		"rooms":                      func(said *pb.RegisterWorkerRequest) { said.Rooms = []*pb.RoomState{{}} },
	} {
		said := registration("p", pb.Role_ROLE_PREFILL, "m")
		change(said)
		var failed *kvtransfer.Error
		if _, err := kvtransfer.StartWorker(client, said, nil); !errors.As(err, &failed) || failed.Field != strings.Fields(field)[0] {
			t.Errorf("want %s refused, got %v", field, err)
		}
	}
}

func TestNothingIsLeftOfAWorker(t *testing.T) {
	client := dial(t)
	prefill, decode, engine := startPair(t, client, 15)
	sender, receiver := meet(t, prefill, decode, engine)
	write(t, sender)
	ends(t, receiver, success)
	before := goleak.IgnoreCurrent()
	extra := must[*kvtransfer.Worker](t)(
		kvtransfer.StartWorker(client, registration(unique("p"), pb.Role_ROLE_PREFILL, "m"), nil))
	await(t, extra, "ready", extra.Open)
	for _, worker := range []*kvtransfer.Worker{extra, prefill, decode} {
		if err := worker.Close(inTime(t)); err != nil {
			t.Errorf("to close: %v", err)
		}
		_, err := client.Heartbeat(inTime(t), worker.Ref(), nil)
		if !errors.Is(err, kvtransfer.ErrWorkerNotFound) {
			t.Errorf("after its end the service knows it: %v", err)
		}
	}
	goleak.VerifyNone(t, before)
	if _, err := prefill.Sender(kvtransfer.Join{Room: newRoom()}, 20); !errors.Is(err, kvtransfer.ErrClosed) {
		t.Errorf("a closed worker joins: %v", err)
	}
	if err := prefill.Ready(inTime(t)); !errors.Is(err, kvtransfer.ErrClosed) {
		t.Errorf("a closed worker is ready: %v", err)
	}
}
