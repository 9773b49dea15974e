package kvtransfer

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// Bytes of texts. A batch or a list of rooms with one that is too long, or no UTF-8, would be lost with all that is in it:
// what a call brings is refused there, what failed with much to say is cut.
const (
	maxRequestID      = 128
	maxTraceparent    = 64
	maxFailureMessage = 1024
	// maxStateMessage: the list of all rooms must fit one message.
	maxStateMessage = 64
)

const maxTimeout = 24 * time.Hour

var engineIDs = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// check refuses what the service would refuse of a join.
func (j *Join) check() error {
	switch {
	case j.Room < 1:
		return invalidField("room", "must be in [1, 2^63), got %d", j.Room)
	case j.PeerEngine != "" && !engineIDs.MatchString(j.PeerEngine):
		return invalidField("peer_engine", "must be 1 to 63 of a-z, 0-9 and '-', got %.100q", j.PeerEngine)
	case len(j.RequestID) > maxRequestID || !utf8.ValidString(j.RequestID):
		return invalidField("request_id", "must be UTF-8 of at most %d bytes, got %.100q", maxRequestID, j.RequestID)
	case len(j.Traceparent) > maxTraceparent || !utf8.ValidString(j.Traceparent):
		return invalidField("traceparent", "must be UTF-8 of at most %d bytes, got %.100q", maxTraceparent, j.Traceparent)
	}
	return checkTimeouts(j.Timeouts)
}

func checkTimeouts(asked *pb.Timeouts) (err error) {
	asked.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		err = checkSpan("timeouts."+string(field.Name()), value.Message().Interface().(*durationpb.Duration))
		return err == nil
	})
	return err
}

func checkSpan(field string, span *durationpb.Duration) error {
	if !span.IsValid() || span.AsDuration() <= 0 || span.AsDuration() > maxTimeout {
		return invalidField(field, "must be above 0 s and at most %s, got %s", maxTimeout, span.AsDuration())
	}
	return nil
}

// cut keeps the first bytes of a text, without what is no UTF-8.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
