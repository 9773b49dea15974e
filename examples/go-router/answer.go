package main

import (
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"
)

// decoded is a decode engine's answer. Times are on CLOCK_MONOTONIC, which all processes of a machine share.
type decoded struct {
	Text           string          `json:"text"`
	OutputIDs      []int           `json:"output_ids"`
	FinishReason   json.RawMessage `json:"finish_reason"`
	PrefillEndedNS int64           `json:"prefill_ended_ns"`
	ArrivedNS      int64           `json:"arrived_ns"`
	CheckedNS      int64           `json:"checked_ns"`
	SteppedNS      int64           `json:"stepped_ns"`
}

// generated is what /generate answers, in SGLang's shape; room and time_to_first_token are beside its fields.
type generated struct {
	Text      string `json:"text"`
	OutputIDs []int  `json:"output_ids"`
	MetaInfo  meta   `json:"meta_info"`
}

type meta struct {
	ID               string          `json:"id"`
	FinishReason     json.RawMessage `json:"finish_reason"` // null while the answer goes on
	PromptTokens     int             `json:"prompt_tokens"`
	CompletionTokens int             `json:"completion_tokens"`
	CachedTokens     int             `json:"cached_tokens"`
	Room             int64           `json:"room"`
	E2ELatency       float64         `json:"e2e_latency,omitempty"`         // of a whole answer
	TimeToFirstToken *firstToken     `json:"time_to_first_token,omitempty"` // likewise
}

// firstToken is in seconds, from the request's arrival to the end of the first decode step; its parts are in order and
// sum to the total.
type firstToken struct {
	Total           float64 `json:"total"`
	Prefill         float64 `json:"prefill"`
	Transfer        float64 `json:"transfer"`
	Check           float64 `json:"check"`
	FirstDecodeStep float64 `json:"first_decode_step"`
}

// shape is what the router knows of a request.
type shape struct {
	rid          string
	room         int64
	promptTokens int
	acceptedNS   int64 // on the engines' clock
}

// part is an answer that goes on: all of its text and tokens until now.
func (s *shape) part(answer *decoded) *generated {
	return &generated{
		Text:      answer.Text,
		OutputIDs: answer.OutputIDs,
		MetaInfo: meta{
			ID:               s.rid,
			PromptTokens:     s.promptTokens,
			CompletionTokens: len(answer.OutputIDs),
			Room:             s.room,
		},
	}
}

// whole is a whole answer, streamed or not.
func (s *shape) whole(answer *decoded) *generated {
	shaped := s.part(answer)
	shaped.MetaInfo.FinishReason = answer.FinishReason
	shaped.MetaInfo.E2ELatency = seconds(monotonicNS() - s.acceptedNS)
	shaped.MetaInfo.TimeToFirstToken = &firstToken{
		Total:           seconds(answer.SteppedNS - s.acceptedNS),
		Prefill:         seconds(answer.PrefillEndedNS - s.acceptedNS),
		Transfer:        seconds(answer.ArrivedNS - answer.PrefillEndedNS),
		Check:           seconds(answer.CheckedNS - answer.ArrivedNS),
		FirstDecodeStep: seconds(answer.SteppedNS - answer.CheckedNS),
	}
	return shaped
}

func seconds(ns int64) float64 {
	return time.Duration(ns).Seconds()
}

// monotonicNS is the time on the engines' clock.
func monotonicNS() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has the clock
	}
	return now.Nano()
}
