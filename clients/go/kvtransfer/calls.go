package kvtransfer

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

var (
	// Pings, so that a dead connection is noticed; the service allows one every 5 s.
	pings = keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}
	// A service that was away is found again soon.
	reconnect = grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 5 * time.Second,
	}
)

// repeatable returns the methods whose repeat is harmless, as the API says by idempotency_level.
func repeatable() []string {
	methods := pb.File_kvtransfer_v1_service_proto.Services().ByName("KVTransfer").Methods()
	var names []string
	for i := range methods.Len() {
		level := methods.Get(i).Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
		if level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
			names = append(names, string(methods.Get(i).Name()))
		}
	}
	return names
}

// serviceConfig has gRPC repeat, a few times, what may be repeated and did not reach the service.
func serviceConfig() string {
	var names []map[string]string
	for _, method := range repeatable() {
		names = append(names, map[string]string{"service": pb.KVTransfer_ServiceDesc.ServiceName, "method": method})
	}
	policy := map[string]any{
		"maxAttempts":          5, // gRPC allows no more
		"initialBackoff":       "0.1s",
		"maxBackoff":           "2s",
		"backoffMultiplier":    2,
		"retryableStatusCodes": []string{"UNAVAILABLE"},
	}
	config, err := json.Marshal(map[string]any{
		"methodConfig": []any{map[string]any{"name": names, "retryPolicy": policy}},
	})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(config)
}

// unary gives a call a deadline, if its context has none, and its error a type.
func unary(timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, request, reply any,
		conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		err := invoke(ctx, method, request, reply, conn, opts...)
		if err == nil {
			return nil
		}
		if _, unsayable := proto.Marshal(request.(proto.Message)); unsayable != nil { // gRPC calls it an internal error
			return invalidField("request", "cannot be sent: %v", unsayable)
		}
		return fromError(err)
	}
}

// streaming gives the errors of a stream a type.
func streaming(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, fromError(err)
	}
	return typedStream{stream}, nil
}

type typedStream struct{ grpc.ClientStream }

func (s typedStream) SendMsg(message any) error {
	if err := s.ClientStream.SendMsg(message); err != nil {
		return fromError(err)
	}
	return nil
}

func (s typedStream) RecvMsg(message any) error {
	if err := s.ClientStream.RecvMsg(message); err != nil {
		return fromError(err)
	}
	return nil
}
