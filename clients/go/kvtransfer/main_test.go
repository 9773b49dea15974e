package kvtransfer_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const (
	pageTokens = 16
	poolPages  = 64
	limit      = 15 * time.Second // of what a test waits for
)

// target is where the service listens that most tests share; empty if there is none.
var target string

func TestMain(m *testing.M) {
	flag.Parse()
	service, err := kvservicetest.Run("--retention", "1")
	if err != nil {
		fmt.Println("without the tests that need a service:", err)
		_ = flag.Set("test.skip", "^Example")
		os.Exit(m.Run())
	}
	target = service.Target
	code := m.Run()
	service.Kill()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// dial makes a client of the shared service, which the test skips without.
func dial(t *testing.T) *kvtransfer.Client {
	t.Helper()
	if target == "" {
		t.Skip(kvservicetest.ErrNone)
	}
	return dialTo(t, target)
}

func dialTo(t *testing.T, target string, opts ...kvtransfer.Option) *kvtransfer.Client {
	t.Helper()
	client, err := kvtransfer.New(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// TestTheDocumentationIsTested: each line of code in the package's documentation is in an example that runs.
func TestTheDocumentationIsTested(t *testing.T) {
	examples := map[string]bool{}
	for _, line := range strings.Split(string(must[[]byte](t)(os.ReadFile("example_test.go"))), "\n") {
		examples[strings.TrimSpace(line)] = true
	}
	for _, line := range strings.Split(string(must[[]byte](t)(os.ReadFile("doc.go"))), "\n") {
		if code, is := strings.CutPrefix(line, "//\t"); is && strings.TrimSpace(code) != "..." && !examples[strings.TrimSpace(code)] {
			t.Errorf("not in an example: %s", code)
		}
	}
}

var drawn atomic.Int64

// unique names an engine that no other test uses.
func unique(name string) string {
	return fmt.Sprintf("%s-%d", name, drawn.Add(1))
}

// newRoom is a room that no other test uses.
func newRoom() int64 {
	return drawn.Add(1)
}

// layout has two layers of k and v in a paged group, and a slot group.
func layout(model string) *pb.Layout {
	const heads, itemBytes = 4, pageTokens * 4 * 64
	region := func(address uint64, items, stride int64, layer *int32) *pb.Region {
		return &pb.Region{
			Layer: layer, Address: address, ItemCount: items, ItemStride: stride, Memory: pb.MemoryKind_MEMORY_KIND_DRAM,
		}
	}
	paged := &pb.BufferGroup{Name: "kv", Kind: pb.BufferGroup_KIND_PAGED, PageTokens: pageTokens}
	for at, name := range []string{"k", "v"} {
		part := &pb.Part{
			Name: name, Dtype: "float16", Order: pb.Part_ORDER_TOKEN_HEAD, TotalHeads: heads, HeadCount: heads,
			ItemBytes: itemBytes,
		}
		for layer := range int32(2) {
			address := uint64(at+1)<<32 | uint64(layer)<<24
			part.Regions = append(part.Regions, region(address, poolPages, itemBytes, &layer))
		}
		paged.Parts = append(paged.Parts, part)
	}
	aux := &pb.Part{
		Name: "row", Dtype: "uint8", Order: pb.Part_ORDER_WHOLE, ItemBytes: 64,
		Regions: []*pb.Region{region(1<<40, 8, 64, nil)},
	}
	return &pb.Layout{
		Model: model,
		Groups: []*pb.BufferGroup{
			paged, {Name: "aux", Kind: pb.BufferGroup_KIND_SLOT, Parts: []*pb.Part{aux}},
		},
		Scratch: region(1<<41, 1, 1<<20, nil),
	}
}

// registration is what rank 0 of an engine of one rank says; its model is the engines' pair.
func registration(engine string, role pb.Role, model string) *pb.RegisterWorkerRequest {
	return &pb.RegisterWorkerRequest{
		EngineId:     engine,
		Role:         role,
		Topology:     &pb.Topology{TpSize: 1, PpSize: 1, DpSize: 1},
		Rank:         &pb.Rank{},
		InstanceId:   newUUID(),
		Layout:       layout(model),
		NixlMetadata: []byte("metadata of " + engine),
	}
}

func newUUID() string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", drawn.Add(1))
}

// offered are 20 tokens in two pages and a slot.
func offered() kvtransfer.Destination {
	return kvtransfer.Destination{
		Tokens: 20, Pages: map[string][]int32{"kv": {3, 9}}, Slots: map[string]int32{"aux": 1},
	}
}

// offeredMessage is offered as the wire has it.
func offeredMessage() *pb.Destination {
	return &pb.Destination{Tokens: 20, Groups: []*pb.GroupIndices{
		{Group: "kv", Indices: []int32{3, 9}}, {Group: "aux", Indices: []int32{1}},
	}}
}

func seconds(s float64) *durationpb.Duration {
	return durationpb.New(time.Duration(s * float64(time.Second)))
}
