package kvtransfer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// party is a worker that lives on unary calls.
type party struct {
	client *kvtransfer.Client
	said   *pb.RegisterWorkerRequest
	ref    *pb.WorkerRef
	join   *pb.Join
}

func register(t *testing.T, client *kvtransfer.Client, said *pb.RegisterWorkerRequest) *party {
	t.Helper()
	answer := must[*pb.RegisterWorkerResponse](t)(client.RegisterWorker(inTime(t), said))
	return &party{client: client, said: said, ref: answer.GetWorker()}
}

// pair registers a prefill and a decode engine of one rank each, which fit each other and no one else.
func pair(t *testing.T, client *kvtransfer.Client) (sender, receiver *party) {
	t.Helper()
	model := unique("model")
	sender = register(t, client, registration(unique("p"), pb.Role_ROLE_PREFILL, model))
	receiver = register(t, client, registration(unique("d"), pb.Role_ROLE_DECODE, model))
	return sender, receiver
}

func (p *party) enter(t *testing.T, join *pb.Join) *pb.HandshakeResponse {
	t.Helper()
	p.join = join
	return must[*pb.HandshakeResponse](t)(p.client.Handshake(inTime(t), p.ref, join))
}

func (p *party) report(t *testing.T, poll pb.KVPoll, completions ...*pb.Completion) kvtransfer.RoomResult {
	t.Helper()
	results := must[[]kvtransfer.RoomResult](t)(p.client.Report(inTime(t), p.ref, &pb.Progress{
		Room: p.join.GetRoom(), JoinId: p.join.GetJoinId(), Poll: poll, Completions: completions,
	}))
	if len(results) != 1 || results[0].Room != p.join.GetRoom() {
		t.Fatalf("one report got %v", results)
	}
	return results[0]
}

func (p *party) cleanup(t *testing.T) *pb.Release {
	t.Helper()
	results := must[[]kvtransfer.CleanupResult](t)(p.client.Cleanup(inTime(t), p.ref, &pb.CleanupItem{
		Room: p.join.GetRoom(), JoinId: p.join.GetJoinId(), Drained: true,
	}))
	if len(results) != 1 || results[0].Err != nil {
		t.Fatalf("one cleanup got %v", results)
	}
	return results[0].Release
}

// wholeOffer is the completion of offeredMessage.
func wholeOffer(room int64, sender, receiver *party) *pb.Completion {
	return &pb.Completion{
		Room: room, Sender: sender.ref.GetWorkerId(), Receiver: receiver.ref.GetWorkerId(),
		OfferId: receiver.join.GetJoinId(), SenderJoinId: sender.join.GetJoinId(), Bytes: 100,
		Groups: []*pb.GroupRanges{
			{Group: "kv", Ranges: []*pb.Range{{Count: 2}}}, {Group: "aux", Ranges: []*pb.Range{{Count: 1}}},
		},
	}
}

func polls(t *testing.T, client *kvtransfer.Client, room int64) map[string]pb.KVPoll {
	t.Helper()
	answer := must[*pb.PollResponse](t)(client.Poll(inTime(t), room))
	found := map[string]pb.KVPoll{}
	for _, transfer := range answer.GetTransfers() {
		for _, participant := range transfer.GetParticipants() {
			found[participant.GetWorker().GetWorkerId()] = participant.GetPoll()
		}
	}
	return found
}

func TestARoomLivesOnUnaryCalls(t *testing.T) {
	client := dial(t)
	sender, receiver := pair(t, client)
	room := newRoom()
	receiver.enter(t, &pb.Join{
		Room: room, JoinId: 1, PeerEngineId: sender.said.GetEngineId(), Destination: offeredMessage(), RequestId: "r1",
	})
	answer := sender.enter(t, &pb.Join{Room: room, JoinId: 2})
	if offers := answer.GetOffers(); len(offers) != 1 || !proto.Equal(offers[0].GetDestination(), offeredMessage()) {
		t.Fatalf("the sender was told %v", offers)
	}
	sender.report(t, pb.KVPoll_KV_POLL_TRANSFERRING)
	want := map[string]pb.KVPoll{
		sender.ref.GetWorkerId():   pb.KVPoll_KV_POLL_TRANSFERRING,
		receiver.ref.GetWorkerId(): pb.KVPoll_KV_POLL_TRANSFERRING,
	}
	if got := polls(t, client, room); !maps.Equal(got, want) {
		t.Errorf("while pages move: %v", got)
	}
	done := wholeOffer(room, sender, receiver)
	if told := sender.report(t, pb.KVPoll_KV_POLL_SUCCESS, done); told.Update.GetOwnPoll() != pb.KVPoll_KV_POLL_SUCCESS {
		t.Errorf("the sender's success was answered %v", told)
	}
	again := receiver.enter(t, receiver.join)
	if len(again.GetCompletions()) != 1 || !proto.Equal(again.GetCompletions()[0], done) {
		t.Errorf("the receiver was told %v", again.GetCompletions())
	}
	if told := receiver.report(t, pb.KVPoll_KV_POLL_SUCCESS, done); told.Update.GetPoll() != pb.KVPoll_KV_POLL_SUCCESS {
		t.Errorf("the room is %v", told)
	}
	for _, one := range []*party{sender, receiver} {
		if release := one.cleanup(t); release.GetState() != pb.Release_STATE_FREE {
			t.Errorf("%s cleaned up: %v", one.ref.GetWorkerId(), release)
		}
	}
	if got := polls(t, client, room); got[receiver.ref.GetWorkerId()] != pb.KVPoll_KV_POLL_SUCCESS {
		t.Errorf("after both cleanups: %v", got)
	}
	var listed []int64
	for transfer, err := range client.ListTransfers(inTime(t), &pb.ListTransfersRequest{RequestId: "r1"}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, transfer.GetRoom())
	}
	if !slices.Equal(listed, []int64{room}) {
		t.Errorf("listed by request: %v", listed)
	}
}

func TestWorkersComeAndGo(t *testing.T) {
	client := dial(t)
	said := registration(unique("p"), pb.Role_ROLE_PREFILL, unique("model"))
	said.LeaseTtl = seconds(7.5)
	worker := register(t, client, said)
	lease := must[time.Duration](t)(client.Heartbeat(inTime(t), worker.ref, proto.Bool(true)))
	if lease != 7500*time.Millisecond {
		t.Errorf("the lease is %s", lease)
	}
	engine := must[*pb.Engine](t)(client.GetEngine(inTime(t), said.GetEngineId(), pb.WorkerView_WORKER_VIEW_FULL))
	if engine.GetState() != pb.EngineState_ENGINE_STATE_DRAINING {
		t.Errorf("an engine of a draining worker is %s", engine.GetState())
	}
	if !proto.Equal(engine.GetWorkers()[0].GetLayout(), said.GetLayout()) {
		t.Errorf("its layout is %v", engine.GetWorkers()[0].GetLayout())
	}
	for range 2 {
		if err := client.DeregisterWorker(inTime(t), worker.ref, true); err != nil {
			t.Errorf("to deregister: %v", err)
		}
	}
	_, err := client.GetEngine(inTime(t), said.GetEngineId(), pb.WorkerView_WORKER_VIEW_BASIC)
	if !errors.Is(err, kvtransfer.ErrEngineNotFound) {
		t.Errorf("the engine of no worker: %v", err)
	}
}

func TestEnginesAreListedPageByPage(t *testing.T) {
	client := dial(t)
	model := unique("model")
	var want []string
	for range 5 {
		want = append(want, register(t, client, registration(unique("p"), pb.Role_ROLE_PREFILL, model)).said.GetEngineId())
	}
	slices.Sort(want)
	request := &pb.ListEnginesRequest{Model: model, PageSize: 2}
	var got []string
	for engine, err := range client.ListEngines(inTime(t), request) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, engine.GetEngineId())
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, registered %v", got, want)
	}
	for engine, err := range client.ListEngines(inTime(t), request) {
		if err != nil || engine.GetEngineId() != want[0] {
			t.Errorf("the first is %v, %v", engine, err)
		}
		break
	}
}

func TestLinksBringThePeersMetadata(t *testing.T) {
	client := dial(t)
	sender, receiver := pair(t, client)
	answer := must[*pb.GetLinksResponse](t)(client.GetLinks(inTime(t), &pb.GetLinksRequest{
		EngineId: sender.said.GetEngineId(), PeerEngineId: receiver.said.GetEngineId(), WorkerId: sender.ref.GetWorkerId(),
	}))
	if len(answer.GetLinks()) != 1 || len(answer.GetPeers()) != 1 {
		t.Fatalf("links %v", answer)
	}
	if string(answer.GetPeers()[0].GetNixlMetadata()) != string(receiver.said.GetNixlMetadata()) {
		t.Errorf("metadata %q", answer.GetPeers()[0].GetNixlMetadata())
	}
}

func TestAbortBeforeAnybodyJoins(t *testing.T) {
	client := dial(t)
	sender, _ := pair(t, client)
	room := newRoom()
	results := must[[]kvtransfer.RoomResult](t)(client.Abort(inTime(t), "the caller hung up", room))
	if len(results) != 1 || results[0].Err != nil || results[0].Update.GetPoll() != pb.KVPoll_KV_POLL_FAILED {
		t.Fatalf("abort: %v", results)
	}
	answer := sender.enter(t, &pb.Join{Room: room, JoinId: 2})
	failure := answer.GetTransfer().GetFailure()
	if failure.GetReason() != pb.FailureReason_FAILURE_REASON_ABORTED || failure.GetMessage() != "the caller hung up" {
		t.Errorf("who joins is told %v", failure)
	}
	if release := sender.cleanup(t); release.GetState() != pb.Release_STATE_FREE {
		t.Errorf("its pages are %v", release)
	}
}

func TestServerInfo(t *testing.T) {
	info := must[*pb.GetServerInfoResponse](t)(dial(t).GetServerInfo(inTime(t)))
	if info.GetVersion() == "" || info.GetLimits().GetRetention().AsDuration() != time.Second {
		t.Errorf("info %v", info)
	}
}

func TestARawSession(t *testing.T) {
	client := dial(t)
	sender, _ := pair(t, client)
	ctx, cancel := context.WithCancel(inTime(t))
	defer cancel()
	stream, err := client.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.SessionRequest{Worker: sender.ref, Batch: 1}); err != nil {
		t.Fatal(err)
	}
	news := must[*pb.SessionResponse](t)(stream.Recv())
	if news.GetAppliedBatch() != 1 || news.GetLeaseTtl().AsDuration() != 15*time.Second {
		t.Errorf("told %v", news)
	}
	cancel()
	if _, err = stream.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
}

func TestManyGoroutinesShareAClient(t *testing.T) {
	client := dial(t)
	failed := make(chan error)
	const callers = 32
	for range callers {
		room := newRoom()
		go func() {
			_, err := client.Abort(inTime(t), "", room)
			failed <- err
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
