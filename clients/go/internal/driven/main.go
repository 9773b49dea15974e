// Command driven is a [kvtransfer.Worker] whose engine and whose memory are another process's. Tests run it so that a
// worker in Go meets workers in Python, with real bytes between them.
//
//	driven TARGET
//
// Both ways go lines of JSON. On stdin come calls, {"id", "call", "args"}, see handlers; a call whose id is not 0 is
// answered by {"id", "result"} or {"id", "error"}. On stdout go also the actions of its data plane, {"action", ...}, see
// [plane]. Bytes and messages are in base64. It ends with its stdin.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
)

type call struct {
	ID   int64           `json:"id"`
	Call string          `json:"call"`
	Args json.RawMessage `json:"args"`
}

type answer struct {
	ID     int64  `json:"id"`
	Result any    `json:"result"`
	Error  string `json:"error,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: driven TARGET")
	}
	client, err := kvtransfer.New(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	said := newLines(os.Stdout)
	engine := &engine{client: client, plane: newPlane(said), rooms: map[int64]room{}}
	if err := serve(os.Stdin, engine.handlers(), said); err != nil {
		log.Fatal(err)
	}
}

// handler does what a call asks for. It must not wait: calls are taken one by one, and a data plane waits for some.
type handler func(args json.RawMessage) (any, error)

// with makes a handler of a function of its arguments.
func with[A any](do func(A) (any, error)) handler {
	return func(raw json.RawMessage) (any, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, err
		}
		return do(args)
	}
}

// serve takes calls until there are no more.
func serve(calls io.Reader, handlers map[string]handler, said *lines) error {
	for decoder := json.NewDecoder(bufio.NewReader(calls)); ; {
		var asked call
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		do, known := handlers[asked.Call]
		if !known {
			return fmt.Errorf("no such call: %q", asked.Call)
		}
		result, err := do(asked.Args)
		told := answer{ID: asked.ID, Result: result}
		if err != nil {
			told = answer{ID: asked.ID, Error: err.Error()}
		}
		if asked.ID != 0 {
			said.say(told)
		} else if err != nil {
			return fmt.Errorf("%s: %w", asked.Call, err)
		}
	}
}

// lines are written in the order in which they are said; who says one does not wait.
type lines struct{ queue chan any }

func newLines(out io.Writer) *lines {
	l := &lines{queue: make(chan any, 1<<16)}
	go func() {
		encoder := json.NewEncoder(out)
		for line := range l.queue {
			if err := encoder.Encode(line); err != nil {
				log.Fatal(err)
			}
		}
	}()
	return l
}

func (l *lines) say(line any) { l.queue <- line }
