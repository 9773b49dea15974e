package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"slices"
)

// maxBody is the most bytes that a request may have.
const maxBody = 1 << 20

// maxShown is the most characters of a value that a message repeats.
const maxShown = 100

// request is what a caller of /generate asks for.
type request struct {
	text     string
	stream   bool            // whether the answer comes as it grows
	rid      string          // empty if the caller gave none
	sampling json.RawMessage // as it came; nil if it did not
}

// parse reads a request. What is not supported is refused by name.
func parse(body io.Reader) (*request, error) {
	raw, err := io.ReadAll(body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &refusal{413, "body: more than 1 MiB"}
	}
	if err != nil {
		return nil, badRequest("body: %v", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil && !json.Valid(raw) {
		return nil, badRequest("body: not JSON: %v", err)
	} else if err != nil || fields == nil {
		return nil, badRequest("body: an object is wanted, not %s", shown(raw))
	}
	parsed := &request{sampling: fields["sampling_params"]}
	if err := str(fields, "text", &parsed.text); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		switch {
		case name == "text" || name == "sampling_params":
		case name == "rid":
			if err := str(fields, "rid", &parsed.rid); err != nil {
				return nil, err
			}
		case name == "stream":
			if value != "true" && value != "false" {
				return nil, badRequest("stream: true or false is wanted, not %s", shown(fields[name]))
			}
			parsed.stream = value == "true"
		default:
			return nil, badRequest("%s: not supported (value %s)", name, shown(fields[name]))
		}
	}
	return parsed, checkSampling(parsed.sampling)
}

func str(fields map[string]json.RawMessage, name string, into *string) error {
	value, given := fields[name]
	if !given || bytes.Equal(value, []byte("null")) || json.Unmarshal(value, into) != nil {
		return badRequest("%s: a string is wanted, not %s", name, shown(value))
	}
	return nil
}

// shown is a caller's value as a message repeats it.
func shown(value json.RawMessage) string {
	if value == nil {
		return "nothing"
	}
	if text := []rune(string(value)); len(text) > maxShown {
		return string(text[:maxShown]) + "..."
	}
	return string(value)
}

// checkSampling refuses what the engines of the demo, which are greedy, do not do.
func checkSampling(raw json.RawMessage) error {
	var given map[string]json.RawMessage
	if raw != nil && json.Unmarshal(raw, &given) != nil {
		return badRequest("sampling_params: an object is wanted, not %s", shown(raw))
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		switch name {
		case "temperature":
			if number, ok := new(big.Float).SetString(string(value)); !ok || number.Sign() != 0 {
				return badRequest("sampling_params.temperature: only 0 (greedy) is supported, not %s", shown(value))
			}
		case "max_new_tokens":
			if number, ok := new(big.Int).SetString(string(value), 10); !ok || number.Sign() < 1 {
				return badRequest("sampling_params.max_new_tokens: a positive integer is wanted, not %s", shown(value))
			}
		default:
			return badRequest("sampling_params.%s: not supported (value %s)", name, shown(value))
		}
	}
	return nil
}
