package main

import (
	"bytes"
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
	// abortMessage is the most characters that an Abort may say.
	abortMessage = 1024
)

// router takes POST /generate in SGLang's shape. It knows neither the model nor its tokenizer, and no KV passes it.
type router struct {
	engines *directory
	client  *kvtransfer.Client
	timeout time.Duration // of each generation
	tasks   sync.WaitGroup
}

func (r *router) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]bool{"ready": true})
	})
	mux.HandleFunc("POST /generate", r.generate)
	return mux
}

func (r *router) generate(w http.ResponseWriter, call *http.Request) {
	accepted := monotonicNS()
	wanted, err := parse(http.MaxBytesReader(w, call.Body, maxBody))
	if err != nil {
		fail(w, err, 0)
		return
	}
	room := drawRoom()
	ctx, cancel := context.WithTimeout(call.Context(), r.timeout)
	defer cancel()
	done, err := r.ask(ctx, room, wanted, accepted)
	switch {
	case err == nil:
		answer(w, http.StatusOK, done)
	case call.Context().Err() != nil:
		r.abort(room, "the caller hung up")
	case ctx.Err() != nil:
		r.abort(room, fmt.Sprintf("not done in %g s", r.timeout.Seconds()))
		fail(w, &refusal{504, fmt.Sprintf("room %d was not done in %g s", room, r.timeout.Seconds())}, room)
	default:
		r.abort(room, err.Error())
		fail(w, err, room)
	}
}

// ask has a prefill engine compute the prompt, and a decode engine the answer.
func (r *router) ask(ctx context.Context, room int64, wanted *request, accepted int64) (*generated, error) {
	prefill, decode, err := r.engines.pick(ctx)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"room": room, "sampling_params": wanted.sampling, "text": wanted.text}
	var prompt struct {
		Tokens int `json:"tokens"`
	}
	if err := post(ctx, prefill.url+"/prefill", body, &prompt); err != nil {
		return nil, err
	}
	delete(body, "text")
	body["tokens"], body["prefill_engine"] = prompt.Tokens, prefill.id
	var done decoded
	if err := post(ctx, decode.url+"/decode", body, &done); err != nil {
		return nil, err
	}
	rid := wanted.rid
	if rid == "" {
		rid = rand.Text()
	}
	return inSGLangsShape(rid, room, prompt.Tokens, accepted, &done), nil
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

// post asks an engine. Its error, or its silence, comes as a refusal.
func post(ctx context.Context, url string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return &refusal{502, err.Error()}
	}
	call.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return &refusal{502, err.Error()}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var said struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
			return &refusal{502, fmt.Sprintf("%s: %s", url, response.Status)}
		}
		return &refusal{response.StatusCode, said.Error.Message}
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return &refusal{502, fmt.Sprintf("%s: %v", url, err)}
	}
	return nil
}

// fail answers in the shape of SGLang's errors; room is 0 if none was given.
func fail(w http.ResponseWriter, err error, room int64) {
	said := map[string]any{"message": err.Error()}
	if room != 0 {
		said["room"] = room
	}
	status := http.StatusServiceUnavailable // the service is away
	var refused *refusal
	if errors.As(err, &refused) {
		status = refused.status
	}
	answer(w, status, map[string]any{"error": said})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone hears nothing
}
