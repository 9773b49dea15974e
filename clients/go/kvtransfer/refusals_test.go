package kvtransfer_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// TestRefusals provokes each reason that can be, on a real service.
func TestRefusals(t *testing.T) {
	client := dial(t)
	sender, receiver := pair(t, client)
	prefill := sender.said.GetEngineId()
	room := newRoom()
	receiver.enter(t, &pb.Join{Room: room, JoinId: 1, PeerEngineId: prefill, Destination: offeredMessage()})
	ctx := inTime(t)

	handshake := func(who *party, join *pb.Join) error {
		_, err := client.Handshake(ctx, who.ref, join)
		return err
	}
	report := func(progress *pb.Progress) error {
		results, err := client.Report(ctx, sender.ref, progress)
		return errors.Join(err, results[0].Err)
	}
	moving := pb.KVPoll_KV_POLL_TRANSFERRING
	for name, refused := range map[string]struct {
		reason   error
		code     codes.Code
		field    string
		metadata string
		call     func() error
	}{
		"a worker that never registered": {
			kvtransfer.ErrWorkerNotFound, codes.NotFound, "", "worker", func() error {
				_, err := client.Heartbeat(ctx, &pb.WorkerRef{WorkerId: "nobody", Epoch: 1}, nil)
				return err
			},
		},
		"an epoch that was superseded": {
			kvtransfer.ErrStaleEpoch, codes.FailedPrecondition, "", "epoch", func() error {
				old := register(t, client, registration(unique("p"), pb.Role_ROLE_PREFILL, "m"))
				register(t, client, old.said)
				_, err := client.Heartbeat(ctx, old.ref, nil)
				return err
			},
		},
		"a rank unlike its engine": {
			kvtransfer.ErrEngineMismatch, codes.FailedPrecondition, "", "field", func() error {
				said := registration(unique("p"), pb.Role_ROLE_PREFILL, "m")
				said.Topology.TpSize = 2
				register(t, client, said)
				other := proto.CloneOf(said)
				other.InstanceId, other.Rank.TpRank, other.Role = newUUID(), 1, pb.Role_ROLE_DECODE
				_, err := client.RegisterWorker(ctx, other)
				return err
			},
		},
		"an engine that is not there": {
			kvtransfer.ErrEngineNotFound, codes.NotFound, "", "engine", func() error {
				_, err := client.GetEngine(ctx, "nobody", pb.WorkerView_WORKER_VIEW_BASIC)
				return err
			},
		},
		"a room that was never opened": {
			kvtransfer.ErrRoomNotFound, codes.NotFound, "", "room", func() error {
				return report(&pb.Progress{Room: newRoom(), JoinId: 1, Poll: moving})
			},
		},
		"another join of the same worker": {
			kvtransfer.ErrRoomReused, codes.AlreadyExists, "", "room", func() error {
				return handshake(receiver, &pb.Join{Room: room, JoinId: 9, PeerEngineId: prefill})
			},
		},
		"engines that do not fit": {
			kvtransfer.ErrLayoutMismatch, codes.FailedPrecondition, "", "field", func() error {
				other := register(t, client, registration(unique("d"), pb.Role_ROLE_DECODE, unique("model")))
				_, err := client.GetLinks(ctx, &pb.GetLinksRequest{
					EngineId: prefill, PeerEngineId: other.said.GetEngineId(),
				})
				return err
			},
		},
		"a negative room": {
			kvtransfer.ErrInvalidField, codes.InvalidArgument, "join.room", "value", func() error {
				return handshake(sender, &pb.Join{Room: -3, JoinId: 1})
			},
		},
		"another destination": {
			kvtransfer.ErrJoinConflict, codes.AlreadyExists, "", "room", func() error {
				join := proto.CloneOf(receiver.join)
				join.Destination.Groups[0].Indices[0] = 5
				return handshake(receiver, join)
			},
		},
		"progress of who did not join": {
			kvtransfer.ErrNotAParticipant, codes.FailedPrecondition, "", "room", func() error {
				return report(&pb.Progress{Room: room, JoinId: 1, Poll: moving})
			},
		},
		"a session that a newer one took over": {
			kvtransfer.ErrSessionReplaced, codes.Aborted, "", "", func() error {
				open := func() func() error {
					stream, err := client.Session(ctx)
					err = errors.Join(err, stream.Send(&pb.SessionRequest{Worker: sender.ref, Batch: 1}))
					if _, first := stream.Recv(); first != nil {
						err = errors.Join(err, first)
					}
					if err != nil {
						t.Fatal(err)
					}
					return func() error {
						_, err := stream.Recv()
						for err == nil {
							_, err = stream.Recv()
						}
						return err
					}
				}
				older := open()
				open()
				return older()
			},
		},
		"a text that is no UTF-8": {
			kvtransfer.ErrInvalidField, codes.InvalidArgument, "request", "", func() error {
				_, err := client.Abort(ctx, "\xff", room)
				return err
			},
		},
		"an answer that is too large": {
			kvtransfer.ErrLimitReached, codes.ResourceExhausted, "", "", func() error {
				_, err := client.Abort(ctx, string(make([]byte, 5<<20)), room)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := refused.call()
			var failed *kvtransfer.Error
			if !errors.Is(err, refused.reason) || !errors.As(err, &failed) {
				t.Fatalf("want %q, got %v", refused.reason, err)
			}
			if failed.Code != refused.code || status.Code(err) == codes.OK {
				t.Errorf("the code is %s", failed.Code)
			}
			if failed.Field != refused.field {
				t.Errorf("the field is %q", failed.Field)
			}
			if _, named := failed.Metadata[refused.metadata]; refused.metadata != "" && !named {
				t.Errorf("the metadata is %v", failed.Metadata)
			}
		})
	}
}

func TestAFullTableNamesItsLimit(t *testing.T) {
	service := kvservicetest.Start(t, "--max-workers", "1")
	client := dialTo(t, service.Target)
	register(t, client, registration("p", pb.Role_ROLE_PREFILL, "m"))
	_, err := client.RegisterWorker(inTime(t), registration("d", pb.Role_ROLE_DECODE, "m"))
	var failed *kvtransfer.Error
	if !errors.Is(err, kvtransfer.ErrLimitReached) || !errors.As(err, &failed) || failed.Metadata["limit"] != "max_workers" {
		t.Errorf("the second worker: %#v", err)
	}
}

func TestADrainingServiceSaysSo(t *testing.T) {
	service := kvservicetest.Start(t, "--drain-grace", "5")
	client := dialTo(t, service.Target, kvtransfer.WithTimeout(limit/10))
	sender, receiver := pair(t, client)
	receiver.enter(t, &pb.Join{Room: 1, JoinId: 1, PeerEngineId: sender.said.GetEngineId()})
	if err := service.Terminate(); err != nil { // the open room keeps it for a while
		t.Fatal(err)
	}
	for {
		_, err := client.RegisterWorker(inTime(t), sender.said)
		if errors.Is(err, kvtransfer.ErrDraining) {
			return
		}
		if err != nil {
			t.Fatalf("a draining service: %v", err)
		}
	}
}

// TestNothingInParticular: a request that is left out asks for all there is, or is refused.
func TestNothingInParticular(t *testing.T) {
	client := dial(t)
	engine := register(t, client, registration(unique("p"), pb.Role_ROLE_PREFILL, "m")).said.GetEngineId()
	found := false
	for one, err := range client.ListEngines(inTime(t), nil) {
		found = found || must[*pb.Engine](t)(one, err).GetEngineId() == engine
	}
	if !found {
		t.Errorf("%s is not among all engines", engine)
	}
	for _, err := range client.ListTransfers(inTime(t), nil) {
		if err != nil {
			t.Error(err)
		}
	}
	for answer, err := range client.Watch(inTime(t), nil) {
		if must[*pb.WatchResponse](t)(answer, err).GetRevision() != 0 {
			break
		}
	}
	if _, err := kvtransfer.StartWorker(client, nil, nil); !errors.Is(err, kvtransfer.ErrInvalidField) {
		t.Errorf("a worker without a registration: %v", err)
	}
}
