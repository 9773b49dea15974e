package kvtransfer_test

import (
	"sync"
	"testing"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// fabric carries notifications between the workers of a test, as NIXL would.
type fabric struct {
	mu      sync.Mutex
	workers map[string]*kvtransfer.Worker
	tasks   sync.WaitGroup
}

// plane is one worker's end of a fabric.
type plane struct {
	fabric *fabric
	peers  chan kvtransfer.Peer
	gone   chan string
	drains chan uint64
	stops  chan int64
}

func (f *fabric) plane() *plane {
	return &plane{f, make(chan kvtransfer.Peer, 8), make(chan string, 8), make(chan uint64, 8), make(chan int64, 8)}
}

func (p *plane) AddPeer(peer kvtransfer.Peer)       { p.peers <- peer }
func (p *plane) DropPeer(instanceID string)         { p.gone <- instanceID }
func (p *plane) Cancel(room int64)                  { p.stops <- room }
func (p *plane) Drain(token uint64)                 { p.drains <- token }
func (p *plane) Notify(instance string, raw []byte) { p.fabric.carry(instance, raw) }

func (f *fabric) add(worker *kvtransfer.Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[worker.InstanceID()] = worker
}

func (f *fabric) carry(instance string, raw []byte) {
	f.tasks.Go(func() {
		f.mu.Lock()
		worker := f.workers[instance]
		f.mu.Unlock()
		worker.Notified(raw)
	})
}

func TestADataPlaneIsToldAndTells(t *testing.T) {
	client := dial(t)
	net := &fabric{workers: map[string]*kvtransfer.Worker{}}
	t.Cleanup(net.tasks.Wait)
	model, engine := unique("model"), unique("p")
	near, far := net.plane(), net.plane()
	prefill := start(t, client, registration(engine, pb.Role_ROLE_PREFILL, model), near)
	decode := start(t, client, registration(unique("d"), pb.Role_ROLE_DECODE, model), far)
	net.add(prefill)
	net.add(decode)
	if peer := <-near.peers; peer.InstanceID != decode.InstanceID() || len(peer.Links) != 1 || len(peer.NIXLMetadata) == 0 {
		t.Errorf("the sender is to meet %+v", peer)
	}
	<-far.peers

	sender, receiver := meet(t, prefill, decode, engine)
	write(t, sender)
	ends(t, receiver, success) // by notification or by the service, whichever came first

	sender, receiver = meet(t, prefill, decode, engine)
	piece, ok := sender.Targets()[0].Begin()
	if !ok {
		t.Fatal("nothing may be written")
	}
	abort(t, client, sender.Room())
	if room := <-near.stops; room != sender.Room() {
		t.Errorf("room %d is to stop", room)
	}
	piece.Done(0)
	token := <-far.drains
	if poll := receiver.Poll(); kvtransfer.Final(poll) {
		t.Errorf("the receiver answered before all was read: %s", poll)
	}
	decode.Drained(token)
	ends(t, receiver, failed)

	sender.Close()
	receiver.Close()
	if err := prefill.Close(inTime(t)); err != nil {
		t.Error(err)
	}
	if instance := <-far.gone; instance != prefill.InstanceID() {
		t.Errorf("%s is gone", instance)
	}
}
