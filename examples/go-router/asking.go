package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// post asks an engine. Its error, or its silence, comes as a refusal.
func post(ctx context.Context, url string, body, into any) error {
	said, err := begin(ctx, url, body)
	if err != nil {
		return err
	}
	defer said.Close()
	if err := json.NewDecoder(said).Decode(into); err != nil {
		return &refusal{502, fmt.Sprintf("%s: %v", url, err)}
	}
	return nil
}

// stream asks a decode engine for an answer that comes as it grows, and passes it on.
func stream(ctx context.Context, url string, body any, known *shape, to *events) error {
	said, err := begin(ctx, url, body)
	if err != nil {
		return err
	}
	defer said.Close()
	lines := json.NewDecoder(said)
	for {
		var line struct {
			decoded
			Error *failed `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case err != nil:
			return &refusal{502, url + ": it hung up in the middle of its answer"}
		case line.Error != nil:
			return &refusal{502, line.Error.Message}
		case line.FinishReason != nil:
			return to.finish(known.whole(&line.decoded))
		}
		if err := to.send(known.part(&line.decoded)); err != nil {
			return err
		}
	}
}

// failed is how an engine tells of an error.
type failed struct {
	Message string `json:"message"`
}

// begin asks an engine and gives the body of its answer, of status 200.
func begin(ctx context.Context, url string, body any) (io.ReadCloser, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, &refusal{502, err.Error()}
	}
	call.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return nil, &refusal{502, err.Error()}
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var said struct {
		Error failed `json:"error"`
	}
	err = json.NewDecoder(response.Body).Decode(&said)
	if err != nil || said.Error.Message == "" || response.StatusCode < 400 {
		return nil, &refusal{502, fmt.Sprintf("%s: %s", url, response.Status)}
	}
	return nil, &refusal{response.StatusCode, said.Error.Message}
}
