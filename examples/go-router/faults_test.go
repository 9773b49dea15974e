package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// TestAnswersThatAreNone: what is no answer of an engine's is the router's to explain, whatever its status.
func TestAnswersThatAreNone(t *testing.T) {
	for name, raw := range map[string]string{
		"no HTTP status":     "HTTP/1.1 042 Odd\r\nContent-Length: 2\r\n\r\n{}",
		"a change of tongue": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
		"success with none":  "HTTP/1.1 204 No Content\r\n\r\n",
		"an empty error":     "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}",
		"a redirect":         "HTTP/1.1 304 Not Modified\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(*router) {})
			s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
			s.register("d", pb.Role_ROLE_DECODE, "m", "http://"+says(t, raw))
			status, said, err := s.post(t.Context(), `{"text": "a"}`)
			if err != nil {
				t.Fatal(err)
			}
			if status < 500 || message(said) == "" {
				t.Errorf("answered %d %v", status, said)
			}
		})
	}
}

// says is where a server listens that answers whatever it is asked with the same bytes.
func says(t *testing.T, raw string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			fmt.Fprint(conn, raw)
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// TestACallerThatStopsReadingIsNotWaitedFor: longer than a request may take.
func TestACallerThatStopsReadingIsNotWaitedFor(t *testing.T) {
	s := newSite(t, func(r *router) { r.timeout = time.Second })
	rooms, over := make(chan int64, 1), make(chan struct{})
	s.engine("p", pb.Role_ROLE_PREFILL, "m", prefilled)
	s.engine("d", pb.Role_ROLE_DECODE, "m", func(w http.ResponseWriter, call *http.Request) {
		defer close(over)
		rooms <- read(t, call).Room
		for text := strings.Repeat("a", 1<<20); call.Context().Err() == nil; {
			line(w, `{"text": "%s", "output_ids": [5]}`, text)
		}
	})
	s.say(streamed)
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Fatal("the engine still streams to a router whose caller reads nothing")
	}
	s.aborted(<-rooms)
}

// TestACallerThatNeverSaysWhatItWantsIsNotWaitedFor: longer than a request may take.
func TestACallerThatNeverSaysWhatItWantsIsNotWaitedFor(t *testing.T) {
	s := newSite(t, func(r *router) { r.timeout = time.Second })
	conn := s.say(streamed[:5])
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the router still waits: %v", err)
	}
}

// say sends a part of the request streamed, and reads nothing.
func (s *site) say(part string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST /generate HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n%s", len(streamed), part)
	return conn
}

// TestWhoIsHungUpOnAtTheEndHasItsRoomAborted: before the router is gone.
func TestWhoIsHungUpOnAtTheEndHasItsRoomAborted(t *testing.T) {
	s := newSite(t, func(*router) {})
	rooms := make(chan int64, 1)
	s.engine("p", pb.Role_ROLE_PREFILL, "m", func(_ http.ResponseWriter, call *http.Request) {
		rooms <- read(t, call).Room
		<-call.Context().Done()
	})
	s.engine("d", pb.Role_ROLE_DECODE, "m", prefilled)
	go func() { _, _, _ = s.post(context.WithoutCancel(t.Context()), `{"text": "a"}`) }()
	room := <-rooms
	s.end()
	polled, err := s.client.Poll(t.Context(), room)
	if err != nil {
		t.Fatal(err)
	}
	if len(polled.GetTransfers()) != 1 || polled.GetTransfers()[0].GetPoll() != pb.KVPoll_KV_POLL_FAILED {
		t.Errorf("the router has ended, and its room is %v", polled.GetTransfers())
	}
}
