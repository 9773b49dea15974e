package kvtransfer

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// Watch follows rooms (at most 1000; all if none is named) in which an engine (any if none is named) takes part: first
// one or more answers with all there is, then what changes, until the loop is left or ctx ends. A slow reader skips
// states in between, never the last.
//
// A stream that breaks is taken up where it was. An error is the last that comes: of ctx, of a request that cannot be
// served, or, if the service stays away for longer than [DefaultTimeout], [ErrUnavailable] or [ErrDraining].
func (c *Client) Watch(ctx context.Context, request *pb.WatchRequest) iter.Seq2[*pb.WatchResponse, error] {
	return func(yield func(*pb.WatchResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		following := &watch{client: c, request: copyOf(request)}
		for {
			answer, err := following.next(ctx)
			if !yield(answer, err) || err != nil {
				return
			}
		}
	}
}

type watch struct {
	client  *Client
	request *pb.WatchRequest // with the revision up to which everything was given
	stream  grpc.ServerStreamingClient[pb.WatchResponse]
}

// next returns the next answer, from a new stream if the present one broke.
func (w *watch) next(ctx context.Context) (*pb.WatchResponse, error) {
	giveUp := time.Now().Add(w.client.timeout)
	for attempt := 0; ; attempt++ {
		answer, err := w.receive(ctx)
		if err == nil {
			if answer.GetRevision() != 0 {
				w.request.AfterRevision = answer.GetRevision()
			}
			return answer, nil
		}
		w.stream = nil
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrDraining) {
			return nil, err
		}
		if attempt == 0 { // a break that comes after hours of quiet has its full time too
			giveUp = time.Now().Add(w.client.timeout)
		}
		pause := time.NewTimer(backoffFor(attempt, 2*time.Second))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ended(ctx)
		}
		if time.Now().After(giveUp) {
			return nil, err
		}
	}
}

// receive reads from the stream, opening one if there is none.
func (w *watch) receive(ctx context.Context) (*pb.WatchResponse, error) {
	if w.stream == nil {
		stream, err := w.client.stub.Watch(ctx, w.request)
		if err != nil {
			return nil, err
		}
		w.stream = stream
	}
	answer, err := w.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, &Error{Code: codes.Unavailable, Message: "the service ended the watch"}
	}
	return answer, err
}

// backoffFor returns a random pause before another attempt, longer on average after each.
func backoffFor(attempt int, most time.Duration) time.Duration {
	return rand.N(min(100*time.Millisecond<<min(attempt, 10), most))
}

// ended is how a call fails whose context is over.
func ended(ctx context.Context) *Error {
	code := codes.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	return &Error{Code: code, Message: ctx.Err().Error()}
}
