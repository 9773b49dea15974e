package main

import (
	"encoding/json"
	"errors"
	"net/http"
)

var errHungUp = errors.New("the caller hung up")

// events is an answer as server-sent events. Its head leaves with the first: until then it may still become an error's.
type events struct {
	w     http.ResponseWriter
	begun bool
}

func (e *events) send(body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return e.write(string(raw))
}

// finish sends the last of an answer.
func (e *events) finish(body any) error {
	if err := e.send(body); err != nil {
		return err
	}
	return e.write("[DONE]")
}

// fail ends an answer that has begun.
func (e *events) fail(err error, room int64) {
	_ = e.finish(failure(err, room)) // a caller that is gone hears nothing
}

func (e *events) write(data string) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	if _, err := e.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		return errHungUp
	}
	if err := http.NewResponseController(e.w).Flush(); err != nil {
		return errHungUp
	}
	return nil
}
