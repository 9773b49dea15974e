package kvtransfer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// shaky is a service that fails on purpose, as a real one cannot be made to.
type shaky struct {
	pb.UnimplementedKVTransferServer
	refusals  atomic.Int32 // calls to refuse with UNAVAILABLE
	deadlines chan time.Duration
}

func (s *shaky) GetServerInfo(ctx context.Context, _ *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	if s.refusals.Add(-1) >= 0 {
		return nil, status.Error(codes.Unavailable, "not now")
	}
	if deadline, ok := ctx.Deadline(); ok {
		s.deadlines <- time.Until(deadline)
	}
	return &pb.GetServerInfoResponse{Version: "shaky", Features: []string{"leap", "from the future"}}, nil
}

func (s *shaky) Abort(ctx context.Context, _ *pb.AbortRequest) (*pb.AbortResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *shaky) Session(grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) error {
	s.refusals.Add(-1)
	return status.Error(codes.Unavailable, "not now")
}

func serve(t *testing.T, opts ...grpc.ServerOption) (*shaky, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &shaky{deadlines: make(chan time.Duration, 1)}
	server := grpc.NewServer(opts...)
	pb.RegisterKVTransferServer(server, service)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return service, listener.Addr().String()
}

func connect(t *testing.T, target string, opts ...Option) *Client {
	t.Helper()
	client, err := New(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestWhatMayBeRepeatedIs(t *testing.T) {
	service, target := serve(t)
	client := connect(t, target)
	service.refusals.Store(3)
	if info, err := client.GetServerInfo(t.Context()); err != nil || info.GetVersion() != "shaky" {
		t.Errorf("after three refusals: %v", err)
	}
	service.refusals.Store(100)
	if _, err := client.GetServerInfo(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("of a service that always refuses: %v", err)
	}
	if tried := 100 - service.refusals.Load(); tried != 5 {
		t.Errorf("tried %d times", tried)
	}
}

func TestAStreamOfBatchesIsNeverRepeated(t *testing.T) {
	service, target := serve(t)
	stream, err := connect(t, target).Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the session ended with %v", err)
	}
	if tried := -service.refusals.Load(); tried != 1 {
		t.Errorf("tried %d times", tried)
	}
}

func TestTheDescriptorSaysWhatMayBeRepeated(t *testing.T) {
	names := repeatable()
	if slices.Contains(names, "Session") || len(names) != len(pb.KVTransfer_ServiceDesc.Methods)+1 {
		t.Errorf("every unary call and Watch, not %v", names)
	}
}

func TestCallsHaveADeadline(t *testing.T) {
	service, target := serve(t)
	left := func(ctx context.Context, opts ...Option) time.Duration {
		if _, err := connect(t, target, opts...).GetServerInfo(ctx); err != nil {
			t.Fatal(err)
		}
		return <-service.deadlines
	}
	if got := left(t.Context()); got > DefaultTimeout || got < DefaultTimeout/2 {
		t.Errorf("by default %s are left", got)
	}
	if got := left(t.Context(), WithTimeout(time.Minute)); got < 2*DefaultTimeout {
		t.Errorf("of a minute %s are left", got)
	}
	longer, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if got := left(longer); got < 2*DefaultTimeout {
		t.Errorf("of the caller's hour %s are left", got)
	}
	_, err := connect(t, target, WithTimeout(50*time.Millisecond)).Abort(t.Context(), "", 1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that is never answered: %v", err)
	}
}

func TestTLS(t *testing.T) {
	certificate, pool := selfSigned(t)
	_, target := serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	trusting := connect(t, target, WithTLS(&tls.Config{RootCAs: pool}))
	if _, err := trusting.GetServerInfo(t.Context()); err != nil {
		t.Errorf("with a trusted certificate: %v", err)
	}
	for name, opts := range map[string][]Option{"plain text": nil, "an unknown certificate": {WithTLS(&tls.Config{})}} {
		client := connect(t, target, append(opts, WithTimeout(time.Second))...)
		if _, err := client.GetServerInfo(t.Context()); err == nil {
			t.Errorf("%s got an answer", name)
		}
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

func TestWhatANewerServiceHasBesidesIsNoMatter(t *testing.T) {
	_, target := serve(t)
	if err := connect(t, target).Require(t.Context(), "leap"); err != nil {
		t.Errorf("it has it: %v", err)
	}
}
