package kvtransfer

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// Client makes calls to one service. Any number of goroutines may use it at once.
//
// Each call ends by its context's deadline, or after [DefaultTimeout] if that has none. Calls whose repeat is harmless,
// and these are all but Session, are repeated a few times while the service cannot be reached. What fails is an
// [*Error].
type Client struct {
	conn    *grpc.ClientConn
	stub    pb.KVTransferClient
	timeout time.Duration
}

// New makes a client of the service at target, such as `127.0.0.1:50051` or any target of gRPC's. It does not wait for
// the service to be there.
func New(target string, opts ...Option) (*Client, error) {
	chosen := collect(opts)
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(chosen.credentials),
		grpc.WithDefaultServiceConfig(serviceConfig()),
		grpc.WithKeepaliveParams(pings),
		grpc.WithConnectParams(reconnect),
		grpc.WithUnaryInterceptor(unary(chosen.timeout)),
		grpc.WithStreamInterceptor(streaming),
	)
	if err != nil {
		return nil, invalidField("target", "%q is not one: %v", target, err)
	}
	return &Client{conn: conn, stub: pb.NewKVTransferClient(conn), timeout: chosen.timeout}, nil
}

// Close ends what is under way, and the connection.
func (c *Client) Close() error {
	return c.conn.Close()
}

// RegisterWorker registers a worker, waiting for the service to be there. It grants a new epoch, and a lease that counts
// from when the call was made. A [Worker] does this by itself.
//
// Errors: [ErrInvalidField], [ErrEngineMismatch], [ErrStaleEpoch] (a process born later has the rank),
// [ErrLimitReached], [ErrDraining].
func (c *Client) RegisterWorker(
	ctx context.Context, request *pb.RegisterWorkerRequest,
) (*pb.RegisterWorkerResponse, error) {
	return c.stub.RegisterWorker(ctx, request, grpc.WaitForReady(true))
}

// Heartbeat renews a lease and returns it; it counts from when the call was made. Draining tells routers to send the
// worker no new rooms, or that they may again; nil leaves it as it was.
//
// Errors: [ErrWorkerNotFound], [ErrStaleEpoch].
func (c *Client) Heartbeat(ctx context.Context, worker *pb.WorkerRef, draining *bool) (time.Duration, error) {
	answer, err := c.stub.Heartbeat(ctx, &pb.HeartbeatRequest{Worker: worker, Draining: draining})
	return answer.GetLeaseTtl().AsDuration(), err
}

// DeregisterWorker removes a worker; an absent one is fine. Drained vouches that no write of its is in flight.
func (c *Client) DeregisterWorker(ctx context.Context, worker *pb.WorkerRef, drained bool) error {
	_, err := c.stub.DeregisterWorker(ctx, &pb.DeregisterWorkerRequest{Worker: worker, Drained: drained})
	return err
}

// GetEngine returns an engine with its live workers; with their layouts too in the full view.
//
// Errors: [ErrEngineNotFound], [ErrInvalidField].
func (c *Client) GetEngine(ctx context.Context, engineID string, view pb.WorkerView) (*pb.Engine, error) {
	answer, err := c.stub.GetEngine(ctx, &pb.GetEngineRequest{EngineId: engineID, View: view})
	return answer.GetEngine(), err
}

// ListEngines returns the engines of a role and a model, all if left out, ordered by id. They are fetched page by page;
// an error is the last that comes.
func (c *Client) ListEngines(ctx context.Context, request *pb.ListEnginesRequest) iter.Seq2[*pb.Engine, error] {
	fetch := func(token string) ([]*pb.Engine, string, error) {
		page := copyOf(request)
		page.PageToken = token
		answer, err := c.stub.ListEngines(ctx, page)
		return answer.GetEngines(), answer.GetNextPageToken(), err
	}
	return pages(request.GetPageToken(), fetch)
}

// GetLinks returns what the workers of two engines' replicas exchange. With a worker_id only that worker's links, and
// its peers with the NIXL metadata needed to reach them.
//
// Errors: [ErrEngineNotFound], [ErrLayoutMismatch] (naming the field), [ErrInvalidField].
func (c *Client) GetLinks(ctx context.Context, request *pb.GetLinksRequest) (*pb.GetLinksResponse, error) {
	return c.stub.GetLinks(ctx, request)
}

// Handshake joins a worker to a room, opening it if it is the first; repeated, it returns what has become known since. A
// room that failed is an answer, not an error.
//
// Errors: [ErrWorkerNotFound], [ErrStaleEpoch], [ErrInvalidField], [ErrEngineNotFound], [ErrRoomReused],
// [ErrJoinConflict], [ErrLimitReached], [ErrDraining].
func (c *Client) Handshake(ctx context.Context, worker *pb.WorkerRef, join *pb.Join) (*pb.HandshakeResponse, error) {
	return c.stub.Handshake(ctx, &pb.HandshakeRequest{Worker: worker, Join: join})
}

// RoomResult is the answer for one room of a batch: the room, or why it was refused.
type RoomResult struct {
	Room   int64
	Update *pb.RoomUpdate
	Err    error
}

// Report records progress, of at most 1000 rooms. One result each, in order.
//
// Errors of the call as a whole: [ErrWorkerNotFound], [ErrStaleEpoch], [ErrInvalidField].
func (c *Client) Report(
	ctx context.Context, worker *pb.WorkerRef, progress ...*pb.Progress,
) ([]RoomResult, error) {
	answer, err := c.stub.Report(ctx, &pb.ReportRequest{Worker: worker, Progress: progress})
	return roomResults(answer.GetResults()), err
}

// CleanupResult is the answer for one room of a Cleanup: when its pages are free, or why it was refused.
type CleanupResult struct {
	Room    int64
	Release *pb.Release
	Err     error
}

// Cleanup releases a worker's part in at most 1000 rooms. One result each, in order.
//
// Errors of the call as a whole: [ErrWorkerNotFound], [ErrStaleEpoch], [ErrInvalidField].
func (c *Client) Cleanup(
	ctx context.Context, worker *pb.WorkerRef, items ...*pb.CleanupItem,
) ([]CleanupResult, error) {
	answer, err := c.stub.Cleanup(ctx, &pb.CleanupRequest{Worker: worker, Items: items})
	results := make([]CleanupResult, 0, len(answer.GetResults()))
	for _, result := range answer.GetResults() {
		one := CleanupResult{Room: result.GetRoom(), Release: result.GetRelease()}
		if result.GetError() != nil {
			one.Err = fromStatus(result.GetError())
		}
		results = append(results, one)
	}
	return results, err
}

// Poll returns the state of 1 to 256 rooms, each with its participants. It never removes anything.
//
// Errors: [ErrInvalidField].
func (c *Client) Poll(ctx context.Context, rooms ...int64) (*pb.PollResponse, error) {
	return c.stub.Poll(ctx, &pb.PollRequest{Rooms: rooms})
}

// Abort asks 1 to 1000 rooms to end; message, up to 1024 characters, says why. One result each, in order. A room that is
// not open yet can no longer be.
//
// Errors: [ErrInvalidField].
func (c *Client) Abort(ctx context.Context, message string, rooms ...int64) ([]RoomResult, error) {
	answer, err := c.stub.Abort(ctx, &pb.AbortRequest{Rooms: rooms, Message: message})
	return roomResults(answer.GetResults()), err
}

// ListTransfers returns rooms under the request's filters, newest first. They are fetched page by page; an error is the
// last that comes.
func (c *Client) ListTransfers(ctx context.Context, request *pb.ListTransfersRequest) iter.Seq2[*pb.Transfer, error] {
	fetch := func(token string) ([]*pb.Transfer, string, error) {
		page := copyOf(request)
		page.PageToken = token
		answer, err := c.stub.ListTransfers(ctx, page)
		return answer.GetTransfers(), answer.GetNextPageToken(), err
	}
	return pages(request.GetPageToken(), fetch)
}

// GetServerInfo returns version, limits, defaults and features of the service.
func (c *Client) GetServerInfo(ctx context.Context) (*pb.GetServerInfoResponse, error) {
	return c.stub.GetServerInfo(ctx, &pb.GetServerInfoRequest{})
}

// Session opens a worker's stream, which ends with its context. A [Worker] keeps one by itself.
//
// Receiving fails with [ErrWorkerNotFound], [ErrStaleEpoch], [ErrSessionReplaced], [ErrInvalidField], [ErrDraining].
func (c *Client) Session(
	ctx context.Context,
) (grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse], error) {
	return c.stub.Session(ctx)
}

func roomResults(wire []*pb.RoomResult) []RoomResult {
	results := make([]RoomResult, 0, len(wire))
	for _, result := range wire {
		one := RoomResult{Room: result.GetRoom(), Update: result.GetUpdate()}
		if result.GetError() != nil {
			one.Err = fromStatus(result.GetError())
		}
		results = append(results, one)
	}
	return results
}

// copyOf is a request for this package to fill in; nil asks for nothing in particular.
func copyOf[T any, M interface {
	*T
	proto.Message
}](request M) M {
	if request == nil {
		return new(T)
	}
	return proto.CloneOf(request)
}

// pages yields the entries of a list, a page at a time.
func pages[T any](token string, fetch func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := token; ; {
			entries, next, err := fetch(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}
