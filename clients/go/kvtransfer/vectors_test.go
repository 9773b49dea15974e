package kvtransfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// vectorFolder holds what every client has to make of the API; its README says how it is written down.
const vectorFolder = "../../../tests/vectors"

type vector struct {
	About string
	Flags []string
	After string
	Let   object
	Steps []step
}

type step struct {
	About   string
	Call    string
	Request object
	Answer  object
	Error   object
	Save    map[string]string
	Repeat  bool
	Open    string
	On      string
	Send    object
	Receive object
	Close   string
	Drain   bool
}

func TestVectors(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(vectorFolder, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors in %s: %v", vectorFolder, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			t.Parallel()
			wanted := loadVector(t, path)
			service := kvservicetest.Start(t, append([]string{"--drain-grace", "0"}, wanted.Flags...)...)
			run := &vectorRun{
				t: t, service: service, client: dialTo(t, service.Target), variables: object{}, streams: map[string]*vectorStream{},
			}
			run.all(wanted)
		})
	}
}

func loadVector(t *testing.T, path string) vector {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(must[[]byte](t)(os.ReadFile(path))))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	var loaded vector
	if err := decoder.Decode(&loaded); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return loaded
}

// vectorRun runs the steps of a vector against a service of its own.
type vectorRun struct {
	t         *testing.T
	service   *kvservicetest.Service
	client    *kvtransfer.Client
	variables object
	streams   map[string]*vectorStream
}

func (r *vectorRun) all(v vector) {
	r.t.Helper()
	if v.After != "" {
		r.all(loadVector(r.t, filepath.Join(vectorFolder, v.After)))
	}
	maps.Copy(r.variables, v.Let)
	for i, s := range v.Steps {
		if problem := r.take(s); problem != "" {
			r.t.Fatalf("%s Step %d (%s %s%s): %s", v.About, i+1, s.About, s.Call, s.On, problem)
		}
	}
}

func (r *vectorRun) take(s step) string {
	switch {
	case s.Open != "":
		r.streams[s.Open] = r.open(s)
	case s.Call != "":
		return r.untilRight(s)
	case s.On != "":
		return r.on(r.streams[s.On], s)
	case s.Close != "":
		r.streams[s.Close].cancel()
	case s.Drain:
		if err := r.service.Terminate(); err != nil {
			return err.Error()
		}
	default:
		return "does nothing"
	}
	return ""
}

func (r *vectorRun) untilRight(s step) string {
	for giveUp := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		problem := r.call(s)
		if problem == "" || !s.Repeat || time.Now().After(giveUp) {
			return problem
		}
	}
}

func (r *vectorRun) call(s step) string {
	if (s.Answer == nil) == (s.Error == nil) {
		return "a call has an answer or an error"
	}
	answer, err := r.unary(s.Call, r.filled(s.Request))
	if err != nil && s.Error == nil {
		return fmt.Sprintf("unexpected %v", err)
	}
	if err != nil {
		return mismatch(r.filled(s.Error), errorJSON(err), "")
	}
	if s.Error != nil {
		return fmt.Sprintf("expected %v, got %v", s.Error, answer)
	}
	for name, path := range s.Save {
		r.variables[name] = picked(answer, path)
	}
	return mismatch(r.filled(s.Answer), answer, "")
}

// unary makes a call by the client's method; requests and answers are JSON.
func (r *vectorRun) unary(method string, said any) (any, error) {
	ctx := r.t.Context()
	switch method {
	case "RegisterWorker":
		return answered(r.client.RegisterWorker(ctx, parse(r.t, said, &pb.RegisterWorkerRequest{})))
	case "Heartbeat":
		request := parse(r.t, said, &pb.HeartbeatRequest{})
		lease, err := r.client.Heartbeat(ctx, request.GetWorker(), request.Draining)
		return answered(&pb.HeartbeatResponse{LeaseTtl: seconds(lease.Seconds())}, err)
	case "DeregisterWorker":
		request := parse(r.t, said, &pb.DeregisterWorkerRequest{})
		return object{}, r.client.DeregisterWorker(ctx, request.GetWorker(), request.GetDrained())
	case "GetEngine":
		request := parse(r.t, said, &pb.GetEngineRequest{})
		engine, err := r.client.GetEngine(ctx, request.GetEngineId(), request.GetView())
		return answered(&pb.GetEngineResponse{Engine: engine}, err)
	case "ListEngines":
		return listed("engines", r.client.ListEngines(ctx, parse(r.t, said, &pb.ListEnginesRequest{})))
	case "GetLinks":
		return answered(r.client.GetLinks(ctx, parse(r.t, said, &pb.GetLinksRequest{})))
	case "Handshake":
		request := parse(r.t, said, &pb.HandshakeRequest{})
		return answered(r.client.Handshake(ctx, request.GetWorker(), request.GetJoin()))
	case "Report":
		request := parse(r.t, said, &pb.ReportRequest{})
		return updates(r.client.Report(ctx, request.GetWorker(), request.GetProgress()...))
	case "Cleanup":
		request := parse(r.t, said, &pb.CleanupRequest{})
		return releases(r.client.Cleanup(ctx, request.GetWorker(), request.GetItems()...))
	case "Poll":
		request := parse(r.t, said, &pb.PollRequest{})
		if request.GetView() != pb.TransferView_TRANSFER_VIEW_UNSPECIFIED {
			r.t.Fatal("Poll of the client has no view")
		}
		return answered(r.client.Poll(ctx, request.GetRooms()...))
	case "Abort":
		request := parse(r.t, said, &pb.AbortRequest{})
		return updates(r.client.Abort(ctx, request.GetMessage(), request.GetRooms()...))
	case "ListTransfers":
		return listed("transfers", r.client.ListTransfers(ctx, parse(r.t, said, &pb.ListTransfersRequest{})))
	case "GetServerInfo":
		return answered(r.client.GetServerInfo(ctx))
	}
	r.t.Fatalf("no such call: %s", method)
	return nil, nil
}

func answered(message proto.Message, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return asJSON(message), nil
}

func listed[T proto.Message](name string, found iter.Seq2[T, error]) (any, error) {
	entries := []any{}
	for entry, err := range found {
		if err != nil {
			return nil, err
		}
		entries = append(entries, asJSON(entry))
	}
	return object{name: entries}, nil
}

func updates(results []kvtransfer.RoomResult, err error) (any, error) {
	entries := []any{}
	for _, result := range results {
		entries = append(entries, entry("update", result.Update, result.Err))
	}
	return object{"results": entries}, err
}

func releases(results []kvtransfer.CleanupResult, err error) (any, error) {
	entries := []any{}
	for _, result := range results {
		entries = append(entries, entry("release", result.Release, result.Err))
	}
	return object{"results": entries}, err
}

func entry(name string, message proto.Message, err error) object {
	if err != nil {
		return object{"error": errorJSON(err)}
	}
	return object{name: asJSON(message)}
}

// vectorStream is an open stream, and what was heard on it so far.
type vectorStream struct {
	cancel  context.CancelFunc
	session grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse] // nil for a Watch
	coming  chan any                                                        // a message, or the error that ended it
	heard   []object
}

func (r *vectorRun) open(s step) *vectorStream {
	ctx, cancel := context.WithCancel(r.t.Context())
	stream := &vectorStream{cancel: cancel, coming: make(chan any)}
	var messages iter.Seq2[proto.Message, error]
	if s.Call == "Session" {
		stream.session = must[grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse]](r.t)(r.client.Session(ctx))
		messages = received(stream.session)
	} else {
		messages = general(r.client.Watch(ctx, parse(r.t, r.filled(s.Request), &pb.WatchRequest{})))
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for message, err := range messages {
			var came any = err
			if err == nil {
				came = asJSON(message)
			}
			select {
			case stream.coming <- came:
			case <-ctx.Done():
				return
			}
		}
	})
	r.t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	return stream
}

// received gives what comes on a session, an error last.
func received(session grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse]) iter.Seq2[proto.Message, error] {
	return func(yield func(proto.Message, error) bool) {
		for {
			message, err := session.Recv()
			if !yield(message, err) || err != nil {
				return
			}
		}
	}
}

func general[T proto.Message](messages iter.Seq2[T, error]) iter.Seq2[proto.Message, error] {
	return func(yield func(proto.Message, error) bool) {
		for message, err := range messages {
			if !yield(message, err) {
				return
			}
		}
	}
}

func (r *vectorRun) on(stream *vectorStream, s step) string {
	if s.Send != nil {
		if err := stream.session.Send(parse(r.t, r.filled(s.Send), &pb.SessionRequest{})); err != nil {
			return err.Error()
		}
		return ""
	}
	expected, _ := r.filled(s.Receive).(object)
	timeout := time.After(limit)
	for s.Error != nil || unheard(expected, stream.heard) != "" {
		select {
		case came := <-stream.coming:
			if ended, ok := came.(error); ok {
				if s.Error == nil {
					return fmt.Sprintf("%s; it ended: %v", unheard(expected, stream.heard), ended)
				}
				return mismatch(r.filled(s.Error), errorJSON(ended), "")
			}
			stream.heard = append(stream.heard, came.(object))
		case <-timeout:
			if s.Error != nil {
				return "it did not end"
			}
			return unheard(expected, stream.heard)
		}
	}
	return ""
}

// filled replaces each `$name` by what was saved.
func (r *vectorRun) filled(value any) any {
	switch value := value.(type) {
	case object:
		full := object{}
		for name, entry := range value {
			full[name] = r.filled(entry)
		}
		return full
	case []any:
		full := make([]any, 0, len(value))
		for _, entry := range value {
			full = append(full, r.filled(entry))
		}
		return full
	case string:
		name, isVariable := strings.CutPrefix(value, "$")
		if !isVariable {
			return value
		}
		saved, ok := r.variables[name]
		if !ok {
			r.t.Fatalf("nothing was saved as %s", value)
		}
		return saved
	}
	return value
}
