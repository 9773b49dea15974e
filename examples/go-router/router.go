package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"math/big"
	"net/http"
	"sync"
	"time"

	"crypto/rand"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
)

const (
	// abortTimeout bounds telling the service; a room that it does not hear of ends by a deadline of its own.
	abortTimeout = 5 * time.Second
	// lastWords is what a caller gets to hear of a timeout.
	lastWords = time.Second
	// abortMessage is the most characters that an Abort may say.
	abortMessage = 1024
)

// router takes POST /generate in SGLang's shape. It knows neither the model nor its tokenizer, and no KV passes it.
type router struct {
	engines *directory
	client  *kvtransfer.Client
	timeout time.Duration  // of each generation
	tasks   sync.WaitGroup // requests under way, and what they leave behind
}

func (r *router) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]bool{"ready": true})
	})
	mux.HandleFunc("POST /generate", r.generate)
	mux.HandleFunc("/", func(w http.ResponseWriter, call *http.Request) {
		fail(w, &refusal{http.StatusNotFound, call.Method + " " + call.URL.Path + ": Not Found"}, 0)
	})
	return mux
}

func (r *router) generate(w http.ResponseWriter, call *http.Request) {
	r.tasks.Add(1)
	defer r.tasks.Done()
	accepted := monotonicNS()
	r.bound(w)
	wanted, err := parse(http.MaxBytesReader(w, call.Body, maxBody))
	if err != nil {
		fail(w, err, 0)
		return
	}
	known := &shape{rid: wanted.rid, room: drawRoom(), acceptedNS: accepted}
	if known.rid == "" {
		known.rid = rand.Text()
	}
	ctx, cancel := context.WithTimeout(call.Context(), r.timeout)
	defer cancel()
	to := &events{w: w}
	err = r.ask(ctx, known, wanted, to)
	switch {
	case err == nil:
		return
	case call.Context().Err() != nil || errors.Is(err, errHungUp):
		r.abort(known.room, errHungUp.Error())
		return
	case ctx.Err() != nil:
		r.abort(known.room, fmt.Sprintf("not done in %g s", r.timeout.Seconds()))
		err = &refusal{504, fmt.Sprintf("room %d was not done in %g s", known.room, r.timeout.Seconds())}
	default:
		r.abort(known.room, err.Error())
	}
	if to.begun {
		to.fail(err, known.room)
	} else {
		fail(w, err, known.room)
	}
}

// bound ends a request whose caller neither says nor hears anything more, once it has had its time and its error.
func (r *router) bound(w http.ResponseWriter) {
	until, connection := time.Now().Add(r.timeout+lastWords), http.NewResponseController(w)
	_ = connection.SetReadDeadline(until) // a connection of net/http's always can
	_ = connection.SetWriteDeadline(until)
}

// ask has a prefill engine compute the prompt, and a decode engine the answer, which goes to the caller.
func (r *router) ask(ctx context.Context, known *shape, wanted *request, to *events) error {
	prefill, decode, err := r.engines.pick(ctx)
	if err != nil {
		return err
	}
	body := map[string]any{"room": known.room, "sampling_params": wanted.sampling, "text": wanted.text}
	var prompt struct {
		Tokens int `json:"tokens"`
	}
	if err := post(ctx, prefill.url+"/prefill", body, &prompt); err != nil {
		return err
	}
	known.promptTokens = prompt.Tokens
	delete(body, "text")
	body["tokens"], body["prefill_engine"] = prompt.Tokens, prefill.id
	if wanted.stream {
		body["stream"] = true
		return stream(ctx, decode.url+"/decode", body, known, to)
	}
	var done decoded
	if err := post(ctx, decode.url+"/decode", body, &done); err != nil {
		return err
	}
	answer(to.w, http.StatusOK, known.whole(&done))
	return nil
}

// abort tells everybody in the room, without making the caller wait.
func (r *router) abort(room int64, message string) {
	if said := []rune(message); len(said) > abortMessage {
		message = string(said[:abortMessage])
	}
	r.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
		defer cancel()
		if _, err := r.client.Abort(ctx, message, room); err != nil {
			log.Printf("room %d was not aborted: %v", room, err)
		}
	})
}

// drawRoom draws from [1, 2^63): nobody else draws the same.
func drawRoom() int64 {
	drawn, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		panic(err) // the reader never fails
	}
	return drawn.Int64() + 1
}

// fail answers in the shape of SGLang's errors; room is 0 if none was given.
func fail(w http.ResponseWriter, err error, room int64) {
	status := http.StatusServiceUnavailable // the service is away
	var refused *refusal
	if errors.As(err, &refused) {
		status = refused.status
	}
	answer(w, status, failure(err, room))
}

func failure(err error, room int64) map[string]any {
	said := map[string]any{"message": err.Error()}
	if room != 0 {
		said["room"] = room
	}
	return map[string]any{"error": said}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone hears nothing
}
