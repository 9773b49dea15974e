package kvtransfer_test

import (
	"testing"
	"time"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func TestDrainingIsSeenByRoutersAndOutlivesARegistration(t *testing.T) {
	service := kvservicetest.Start(t)
	client := dialTo(t, service.Target)
	said := registration("p", pb.Role_ROLE_PREFILL, "m")
	said.LeaseTtl = seconds(3)
	worker := start(t, client, said, nil)
	worker.SetDraining(true) // before it has registered
	seenAs(t, client, pb.EngineState_ENGINE_STATE_DRAINING)

	epoch := worker.Ref().GetEpoch()
	if err := service.Pause(); err != nil {
		t.Fatal(err)
	}
	await(t, worker, "fenced", func() bool { return !worker.Open() })
	if err := service.Resume(); err != nil {
		t.Fatal(err)
	}
	await(t, worker, "registered again", func() bool { return worker.Open() && worker.Ref().GetEpoch() > epoch })
	seenAs(t, client, pb.EngineState_ENGINE_STATE_DRAINING)
	worker.SetDraining(false)
	seenAs(t, client, pb.EngineState_ENGINE_STATE_READY)
}

// TestAPeerThatDrainsIsMet: its rooms go on, and it may still join others.
func TestAPeerThatDrainsIsMet(t *testing.T) {
	client := dial(t)
	model, engine := unique("model"), unique("p")
	decode := start(t, client, registration(unique("d"), pb.Role_ROLE_DECODE, model), nil)
	decode.SetDraining(true)
	await(t, decode, "ready", decode.Open)
	prefill := start(t, client, registration(engine, pb.Role_ROLE_PREFILL, model), nil)
	await(t, prefill, "told of its peer", func() bool { return len(prefill.Peers()) == 1 })
	sender, receiver := meet(t, prefill, decode, engine)
	write(t, sender)
	ends(t, receiver, success)
}

// seenAs waits until ListEngines shows the service's only engine so.
func seenAs(t *testing.T, client *kvtransfer.Client, want pb.EngineState) {
	t.Helper()
	for ctx := inTime(t); ; time.Sleep(20 * time.Millisecond) {
		for engine, err := range client.ListEngines(ctx, &pb.ListEnginesRequest{}) {
			if err != nil {
				t.Fatalf("never seen as %s: %v", want, err)
			}
			if engine.GetState() == want {
				return
			}
		}
	}
}
