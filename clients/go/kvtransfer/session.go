package kvtransfer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const (
	// drainTimeout is what a fenced worker gives its writes to end before it registers again.
	drainTimeout = 30 * time.Second
	// deregisterTimeout bounds the goodbye; without it the lease ends by itself.
	deregisterTimeout = 2 * time.Second
)

// keep keeps the worker registered and its stream open until ctx ends, or until it never can be.
func (w *Worker) keep(ctx context.Context) {
	registered := false
	for breaks := 0; ctx.Err() == nil; {
		if !registered {
			if err := w.register(ctx); err != nil {
				if ctx.Err() == nil {
					w.giveUp(err)
				}
				return
			}
			registered = true
		}
		opened, err := w.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.isFenced() || errors.Is(err, ErrStaleEpoch) || errors.Is(err, ErrWorkerNotFound) {
			slog.Warn("kvtransfer: registering again", "worker", w.Ref().GetWorkerId(), "cause", err)
			w.drain(ctx)
			registered = false
			continue
		}
		breaks++
		if opened {
			breaks = 0
		}
		if worthSaying(breaks) {
			slog.Warn("kvtransfer: session broke, coming back", "worker", w.Ref().GetWorkerId(), "cause", err)
		}
		sleep(ctx, backoffFor(breaks, time.Second))
	}
}

// register tries until it succeeds. A refusal that more of the same cannot change is returned: a bad field, or a later
// process at this rank.
func (w *Worker) register(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		err := w.registerOnce(ctx)
		if err == nil || errors.Is(err, ErrInvalidField) || errors.Is(err, ErrStaleEpoch) || ctx.Err() != nil {
			return err
		}
		if worthSaying(attempt) {
			slog.Warn("kvtransfer: not registered yet", "engine", w.registration.GetEngineId(), "cause", err)
		}
		sleep(ctx, backoffFor(attempt, 2*time.Second))
	}
}

func (w *Worker) registerOnce(ctx context.Context) error {
	request := proto.CloneOf(w.registration)
	// No stream is open from here to the answer: no join is sent in between.
	var sentAt time.Duration
	w.event(func(r *rooms) {
		sentAt = boottime()
		request.BirthEpoch, request.Rooms = r.birthEpoch, r.states(sentAt)
	})
	answer, err := w.client.stub.RegisterWorker(ctx, request)
	if err != nil {
		return err
	}
	lease := answer.GetLeaseTtl().AsDuration()
	w.event(func(r *rooms) {
		w.ref, w.lease = answer.GetWorker(), lease
		r.registered(answer, sentAt)
	})
	return nil
}

// stream keeps a stream until it breaks. Returns whether it ever answered, and why it broke.
func (w *Worker) stream(ctx context.Context) (opened bool, cause error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.event(func(r *rooms) { r.streamOpened() })
	stream, err := w.client.stub.Session(ctx)
	if err != nil {
		return false, err
	}
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		w.send(ctx, stream)
		cancel()
	}()
	defer func() {
		cancel()
		<-sending
		w.event(func(*rooms) { w.open = false })
	}()
	for {
		news, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return opened, &Error{Code: codes.Unavailable, Message: "the service ended the session"}
		}
		if err != nil {
			return opened, err
		}
		opened = true
		w.event(func(r *rooms) {
			w.open = true
			r.received(news, boottime())
		})
	}
}

// send sends batches as they come up, and an empty one in time to keep the lease, until the stream ends or the lease has
// lapsed.
func (w *Worker) send(ctx context.Context, stream grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse]) {
	w.mu.Lock()
	ref := w.ref              // for the first message alone
	renewEvery := w.lease / 4 // twice before the fence, at two thirds or later
	w.mu.Unlock()
	for {
		batch := w.takeBatch()
		if batch == nil {
			return
		}
		batch.Worker, ref = ref, nil
		if stream.Send(batch) != nil {
			return // receiving tells why
		}
		if !w.waitToSend(ctx, renewEvery) {
			return
		}
	}
}

// takeBatch returns nil if the lease has lapsed.
func (w *Worker) takeBatch() *pb.SessionRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := boottime()
	w.rooms.checkFence(now)
	if w.rooms.fenced {
		return nil
	}
	return w.rooms.out.take(now)
}

// waitToSend waits until there is something to send, and at most so long. False if the stream has ended.
func (w *Worker) waitToSend(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-w.wake:
			w.mu.Lock()
			due := w.rooms.out.pending() || w.rooms.fenced
			w.mu.Unlock()
			if due {
				return true
			}
		}
	}
}

// drain has nothing more written, and waits for what is under way to end.
func (w *Worker) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	w.event(func(r *rooms) {
		r.fenced = true
		r.stopWriting()
	})
	_ = w.Wait(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.rooms.writing()
	})
}

// worthSaying: what goes on and on is not said each time.
func worthSaying(attempt int) bool {
	return attempt <= 1 || attempt == 5 || attempt%25 == 0
}

// deregister says goodbye; drained vouches that no write is in flight.
func (w *Worker) deregister() {
	w.mu.Lock()
	ref, drained := w.ref, !w.rooms.writing() && !w.rooms.undrained
	if w.fatal != nil {
		ref = nil
	}
	w.mu.Unlock()
	if ref == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deregisterTimeout)
	defer cancel()
	if err := w.client.DeregisterWorker(ctx, ref, drained); err != nil {
		slog.Info("kvtransfer: not deregistered, the lease will end", "worker", ref.GetWorkerId(), "cause", err)
	}
}

// fetchLinks asks for the links with a peer, beside everything else.
func (w *Worker) fetchLinks(change *pb.PeerChange) {
	request := &pb.GetLinksRequest{
		EngineId:     w.registration.GetEngineId(),
		DpRank:       w.registration.GetRank().GetDpRank(),
		PeerEngineId: change.GetEngineId(),
		PeerDpRank:   change.GetDpRank(),
		WorkerId:     w.ref.GetWorkerId(),
	}
	w.tasks.Go(func() {
		answer, err := w.client.GetLinks(w.ctx, request)
		w.event(func(r *rooms) {
			if err != nil {
				slog.Warn("kvtransfer: links not fetched yet", "peer", change.GetPeer().GetWorkerId(), "cause", err)
				r.roster.failed(change.GetPeer().GetInstanceId(), boottime())
			} else {
				r.roster.linksFetched(change, answer)
			}
		})
	})
}

func (w *Worker) giveUp(err error) {
	slog.Error("kvtransfer: cannot register", "engine", w.registration.GetEngineId(), "cause", err)
	w.event(func(r *rooms) {
		w.fatal = err
		r.giveUp(err.Error())
	})
}

func (w *Worker) isFenced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rooms.fenced
}

func sleep(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
