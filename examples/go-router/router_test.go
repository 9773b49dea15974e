package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// site is a service, a router and engines, whose HTTP ends the test plays.
type site struct {
	t      *testing.T
	client *kvtransfer.Client
	url    string
	end    func() // ends the router
}

var instances atomic.Int64

func newSite(t *testing.T, change func(*router)) *site {
	t.Helper()
	service := kvservicetest.Start(t)
	client, err := kvtransfer.New(service.Target)
	if err != nil {
		t.Fatal(err)
	}
	router := &router{engines: &directory{client: client}, client: client, timeout: 10 * time.Second}
	change(router)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		defer close(ended)
		ended <- serve(ctx, listener, router)
	}()
	end := func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		end()
		_ = client.Close()
	})
	return &site{t, client, "http://" + listener.Addr().String(), end}
}

// engine registers one whose HTTP end is handle.
func (s *site) engine(id string, role pb.Role, model string, handle http.HandlerFunc) {
	s.t.Helper()
	server := httptest.NewServer(handle)
	s.t.Cleanup(server.Close)
	s.register(id, role, model, server.URL)
}

func (s *site) register(id string, role pb.Role, model, endpoint string) {
	s.t.Helper()
	region := func(address uint64) *pb.Region {
		return &pb.Region{Address: address, ItemCount: 1, ItemStride: 1 << 20, Memory: pb.MemoryKind_MEMORY_KIND_DRAM}
	}
	row := &pb.Part{
		Name: "row", Dtype: "uint8", Order: pb.Part_ORDER_WHOLE, ItemBytes: 64, Regions: []*pb.Region{region(1 << 40)},
	}
	_, err := s.client.RegisterWorker(s.t.Context(), &pb.RegisterWorkerRequest{
		EngineId: id, Role: role, Endpoint: endpoint, Rank: &pb.Rank{},
		Topology:   &pb.Topology{TpSize: 1, PpSize: 1, DpSize: 1},
		InstanceId: fmt.Sprintf("00000000-0000-4000-8000-%012x", instances.Add(1)),
		Layout: &pb.Layout{Model: model, Scratch: region(1 << 41), Groups: []*pb.BufferGroup{{
			Name: "aux", Kind: pb.BufferGroup_KIND_SLOT, Parts: []*pb.Part{row},
		}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// post gives the status and the body of an answer to /generate.
func (s *site) post(ctx context.Context, body string) (int, map[string]any, error) {
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/generate", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	var said map[string]any
	err = json.NewDecoder(response.Body).Decode(&said)
	return response.StatusCode, said, err
}

func (s *site) generate(body string) (int, map[string]any) {
	s.t.Helper()
	status, said, err := s.post(s.t.Context(), body)
	if err != nil {
		s.t.Fatal(err)
	}
	return status, said
}

// aborted waits until the room of a request is, and gives what is said of it.
func (s *site) aborted(room int64) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	for answer, err := range s.client.Watch(ctx, &pb.WatchRequest{Rooms: []int64{room}}) {
		if err != nil {
			s.t.Fatal(err)
		}
		for _, transfer := range answer.GetTransfers() {
			if transfer.GetFailure().GetReason() == pb.FailureReason_FAILURE_REASON_ABORTED {
				return transfer.GetFailure().GetMessage()
			}
		}
	}
	return ""
}

func message(said map[string]any) string {
	return said["error"].(map[string]any)["message"].(string)
}

// asked is what an engine is sent.
type asked struct {
	Room          int64          `json:"room"`
	Text          string         `json:"text"`
	Tokens        int            `json:"tokens"`
	PrefillEngine string         `json:"prefill_engine"`
	Sampling      map[string]int `json:"sampling_params"`
}

func read(t *testing.T, call *http.Request) asked {
	var body asked
	if err := json.NewDecoder(call.Body).Decode(&body); err != nil {
		t.Error(err)
	}
	return body
}

func prefilled(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"tokens": 3}`)
}

func TestARequestGoesToPrefillAndThenToDecode(t *testing.T) {
	s := newSite(t, func(*router) {})
	var first, second asked
	s.engine("p", pb.Role_ROLE_PREFILL, "m", func(w http.ResponseWriter, call *http.Request) {
		first = read(t, call)
		prefilled(w, call)
	})
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, call *http.Request) {
		second = read(t, call)
		now := monotonicNS()
		fmt.Fprintf(w, `{"text": " < story", "output_ids": [5, 6], "finish_reason": {"type": "length", "length": 2},
			"prefill_ended_ns": %d, "arrived_ns": %d, "checked_ns": %d, "stepped_ns": %d}`,
			now+1_000_000, now+3_000_000, now+6_000_000, now+10_000_000)
	})
	status, said := s.generate(`{"text": "Once", "rid": "r1", "sampling_params": {"temperature": 0, "max_new_tokens": 2}}`)
	if status != 200 || said["text"] != " < story" {
		t.Fatalf("answered %d %v", status, said)
	}
	info := said["meta_info"].(map[string]any)
	if info["id"] != "r1" || info["prompt_tokens"] != 3.0 || info["completion_tokens"] != 2.0 {
		t.Errorf("meta_info %v", info)
	}
	parts := info["time_to_first_token"].(map[string]any)
	sum := parts["prefill"].(float64) + parts["transfer"].(float64) + parts["check"].(float64) +
		parts["first_decode_step"].(float64)
	if total := parts["total"].(float64); total < 0.01 || total > 10 || sum-total > 1e-6 || total-sum > 1e-6 {
		t.Errorf("the parts %v do not sum to the whole", parts)
	}
	if first.Text != "Once" || first.Room < 1 || first.Sampling["max_new_tokens"] != 2 {
		t.Errorf("prefill was asked %+v", first)
	}
	if second.Text != "" || second.Room != first.Room || second.Tokens != 3 || second.PrefillEngine != "p" {
		t.Errorf("decode was asked %+v", second)
	}
	if _, again := s.generate(`{"text": "Once"}`); again["meta_info"].(map[string]any)["room"] == info["room"] {
		t.Error("two requests have one room")
	}
}

func TestEnginesArePickedByModelAndReadiness(t *testing.T) {
	s := newSite(t, func(r *router) { r.engines.model, r.engines.decode = "m", "http://127.0.0.1:1" })
	if status, said := s.generate(`{"text": "a"}`); status != 503 {
		t.Errorf("without engines: %d %v", status, said)
	}
	wrong := func(http.ResponseWriter, *http.Request) { t.Error("an engine of another model was asked") }
	s.engine("other-p", pb.Role_ROLE_PREFILL, "n", wrong)
	s.engine("other-d", pb.Role_ROLE_DECODE, "n", wrong)
	if status, said := s.generate(`{"text": "a"}`); status != 503 {
		t.Errorf("with engines of another model: %d %v", status, said)
	}
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.register("d", pb.Role_ROLE_DECODE, "m", "")
	status, said := s.generate(`{"text": "a"}`)
	if status != 502 || !strings.Contains(message(said), "127.0.0.1:1") {
		t.Errorf("an engine without an endpoint is not asked where the flag says: %d %v", status, said)
	}
}

func TestAnEnginesRefusalIsTheRouters(t *testing.T) {
	s := newSite(t, func(*router) {})
	s.engine("p", pb.Role_ROLE_PREFILL, "m", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": {"message": "text: must not be empty"}}`)
	})
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(http.ResponseWriter, *http.Request) { t.Error("decode was asked") })
	status, said := s.generate(`{"text": ""}`)
	if status != 400 || message(said) != "text: must not be empty" {
		t.Errorf("answered %d %v", status, said)
	}
	if _, named := said["error"].(map[string]any)["room"]; !named {
		t.Errorf("no room is named: %v", said)
	}
}

func TestWhoHangsUpEndsTheRoom(t *testing.T) {
	s := newSite(t, func(*router) {})
	rooms := make(chan int64, 1)
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(_ http.ResponseWriter, call *http.Request) {
		rooms <- read(t, call).Room
		<-call.Context().Done()
	})
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = s.post(ctx, `{"text": "a"}`) // it has no answer
	}()
	room := <-rooms
	hangUp()
	<-gone
	if said := s.aborted(room); said != "the caller hung up" {
		t.Errorf("the room ended with %q", said)
	}
}

func TestARequestHasATimeout(t *testing.T) {
	s := newSite(t, func(r *router) { r.timeout = 100 * time.Millisecond })
	rooms := make(chan int64, 1)
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(_ http.ResponseWriter, call *http.Request) {
		rooms <- read(t, call).Room
		<-call.Context().Done()
	})
	status, said := s.generate(`{"text": "a"}`)
	room := <-rooms
	if status != 504 || message(said) != fmt.Sprintf("room %d was not done in 0.1 s", room) {
		t.Errorf("answered %d %v", status, said)
	}
	if said := s.aborted(room); said != "not done in 0.1 s" {
		t.Errorf("the room ended with %q", said)
	}
}

func TestBadRequestsAreRefusedByName(t *testing.T) {
	for body, want := range map[string]string{
		`nonsense`:                                 "body: not JSON",
		`[1]`:                                      "body: an object is wanted, not [1]",
		`null`:                                     "body: an object is wanted, not null",
		`{}`:                                       "text: a string is wanted, not nothing",
		`{"text": 7}`:                              "text: a string is wanted, not 7",
		`{"text": "a", "rid": null}`:               "rid: a string is wanted, not null",
		`{"text": "a", "stream": 1}`:               "stream: true or false is wanted, not 1",
		`{"text": "a", "lora_path": "x"}`:          `lora_path: not supported (value "x")`,
		`{"text": "a", "sampling_params": [1]}`:    "sampling_params: an object is wanted, not [1]",
		sampled(`"temperature": 0.7`):              "sampling_params.temperature: only 0 (greedy) is supported, not 0.7",
		sampled(`"temperature": false`):            "sampling_params.temperature: only 0 (greedy) is supported, not false",
		sampled(`"max_new_tokens": 0`):             "sampling_params.max_new_tokens: a positive integer is wanted, not 0",
		sampled(`"max_new_tokens": 1.5`):           "sampling_params.max_new_tokens: a positive integer is wanted, not 1.5",
		sampled(`"top_p": 1`):                      "sampling_params.top_p: not supported (value 1)",
		sampled(`"temperature": 0`):                "",
		`{"text": "a", "sampling_params": null}`:   "",
		`{"text": "a", "stream": false}`:           "",
		`{"text": "a", "stream": true}`:            "",
		sampled(`"max_new_tokens": 99999999999.0`): "sampling_params.max_new_tokens: a positive integer",
	} {
		_, err := parse(strings.NewReader(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s is refused: %v", body, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s is answered %v", body, err)
		}
	}
}

func sampled(params string) string {
	return `{"text": "a", "sampling_params": {` + params + `}}`
}

func TestABodyIsBounded(t *testing.T) {
	s := newSite(t, func(*router) {})
	status, said := s.generate(`{"text": "` + strings.Repeat("a", maxBody) + `"}`)
	if status != 413 {
		t.Errorf("answered %d %v", status, said)
	}
}
