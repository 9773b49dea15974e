package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const streamed = `{"text": "a", "rid": "r1", "stream": true}`

// open asks /generate for a stream, and gives the answer with its events as they come.
func (s *site) open(ctx context.Context) (*http.Response, *bufio.Scanner) {
	s.t.Helper()
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/generate", strings.NewReader(streamed))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	return response, bufio.NewScanner(response.Body)
}

// next is the data of the next event; empty at the end of the stream.
func next(events *bufio.Scanner) string {
	for events.Scan() {
		if data, found := strings.CutPrefix(events.Text(), "data: "); found {
			return data
		}
	}
	return ""
}

func object(t *testing.T, data string) map[string]any {
	t.Helper()
	var said map[string]any
	if err := json.Unmarshal([]byte(data), &said); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return said
}

// line has a decode engine say something that its caller reads at once.
func line(w http.ResponseWriter, format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
	_ = http.NewResponseController(w).Flush()
}

func TestAStreamedAnswerGrowsToTheWholeOne(t *testing.T) {
	s := newSite(t, func(*router) {})
	more := make(chan struct{})
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, _ *http.Request) {
		line(w, `{"text": " a", "output_ids": [5]}`)
		<-more // the first event is there before the second token is
		line(w, `{"text": " a b", "output_ids": [5, 6], "finish_reason": {"type": "length", "length": 2},
			"prefill_ended_ns": 1, "arrived_ns": 2, "checked_ns": 3, "stepped_ns": 4}`)
	})
	response, events := s.open(t.Context())
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("answered %d %s", response.StatusCode, kind)
	}
	first := object(t, next(events))
	close(more)
	last := object(t, next(events))
	if first["text"] != " a" || last["text"] != " a b" {
		t.Errorf("texts %q, %q", first["text"], last["text"])
	}
	before, after := first["meta_info"].(map[string]any), last["meta_info"].(map[string]any)
	if before["id"] != "r1" || before["finish_reason"] != nil || before["completion_tokens"] != 1.0 {
		t.Errorf("meta_info of the first event %v", before)
	}
	if after["finish_reason"].(map[string]any)["type"] != "length" || after["time_to_first_token"] == nil {
		t.Errorf("meta_info of the last event %v", after)
	}
	if done, end := next(events), next(events); done != "[DONE]" || end != "" {
		t.Errorf("the stream ends with %q, %q", done, end)
	}
}

func TestAnErrorInTheMiddleOfAStreamIsAnEvent(t *testing.T) {
	for name, end := range map[string]string{
		"room 7: ABORTED: enough":                `{"error": {"message": "room 7: ABORTED: enough"}}`,
		"it hung up in the middle of its answer": "",
	} {
		s := newSite(t, func(*router) {})
		rooms := make(chan int64, 1)
		s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
		s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, call *http.Request) {
			rooms <- read(t, call).Room
			line(w, `{"text": " a", "output_ids": [5]}`)
			line(w, "%s", end)
		})
		_, events := s.open(t.Context())
		next(events)
		failed, done := object(t, next(events)), next(events)
		if !strings.HasSuffix(message(failed), name) || done != "[DONE]" {
			t.Errorf("the stream ends with %v, %q", failed, done)
		}
		if said := s.aborted(<-rooms); !strings.HasSuffix(said, name) {
			t.Errorf("the room ended with %q", said)
		}
	}
}

func TestAnErrorBeforeTheFirstEventHasItsStatus(t *testing.T) {
	s := newSite(t, func(*router) {})
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error": {"message": "64 rooms are open or waiting already"}}`)
	})
	status, said := s.generate(streamed)
	if status != 503 || message(said) != "64 rooms are open or waiting already" {
		t.Errorf("answered %d %v", status, said)
	}
}

func TestWhoHangsUpOnAStreamEndsTheRoom(t *testing.T) {
	s := newSite(t, func(*router) {})
	rooms := make(chan int64, 1)
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, call *http.Request) {
		rooms <- read(t, call).Room
		line(w, `{"text": " a", "output_ids": [5]}`)
		<-call.Context().Done()
	})
	ctx, hangUp := context.WithCancel(t.Context())
	_, events := s.open(ctx)
	next(events)
	hangUp()
	if said := s.aborted(<-rooms); said != "the caller hung up" {
		t.Errorf("the room ended with %q", said)
	}
}

func TestATimeoutInTheMiddleOfAStreamIsAnEvent(t *testing.T) {
	s := newSite(t, func(r *router) { r.timeout = 200 * time.Millisecond })
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, call *http.Request) {
		_ = read(t, call)
		line(w, `{"text": " a", "output_ids": [5]}`)
		<-call.Context().Done()
	})
	_, events := s.open(t.Context())
	next(events)
	if said := message(object(t, next(events))); !strings.HasSuffix(said, "was not done in 0.2 s") {
		t.Errorf("the stream ends with %q", said)
	}
}
