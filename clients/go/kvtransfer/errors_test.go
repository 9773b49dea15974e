package kvtransfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func wireError(t *testing.T, code codes.Code, reason string) *spb.Status {
	t.Helper()
	info, err := anypb.New(&errdetails.ErrorInfo{
		Reason: reason, Domain: "kvtransfer.v1", Metadata: map[string]string{"room": "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &spb.Status{Code: int32(code), Message: reason + ": what happened", Details: []*anypb.Any{info}}
}

func TestEveryReasonHasItsError(t *testing.T) {
	seen := map[error]string{}
	for number, name := range pb.ErrorReason_name {
		if number == 0 {
			continue
		}
		reason := strings.TrimPrefix(name, "ERROR_REASON_")
		err := fmt.Errorf("wrapped: %w", fromStatus(wireError(t, codes.Unknown, reason)))
		sentinel := sentinels[pb.ErrorReason(number)]
		if sentinel == nil || !errors.Is(err, sentinel) {
			t.Errorf("%s is not %v", reason, sentinel)
		}
		if other, taken := seen[sentinel]; taken {
			t.Errorf("%s and %s are the same error", reason, other)
		}
		seen[sentinel] = reason
		var failed *Error
		if !errors.As(err, &failed) || failed.Reason != pb.ErrorReason(number) || failed.Metadata["room"] != "7" {
			t.Errorf("%s came as %#v", reason, failed)
		}
		if failed.Error() != reason+": what happened" {
			t.Errorf("%s reads %q", reason, failed.Error())
		}
	}
}

func TestAReasonNewerThanThisPackage(t *testing.T) {
	err := fromStatus(wireError(t, codes.NotFound, "MOON_PHASE"))
	if err.Reason != 0 || err.Code != codes.NotFound || err.Error() != "NotFound: MOON_PHASE: what happened" {
		t.Errorf("it is %#v, %v", err, err)
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			t.Errorf("it is taken for %v", sentinel)
		}
	}
}

func TestErrorsOfTheConnection(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.Unavailable:       ErrUnavailable,
		codes.DeadlineExceeded:  context.DeadlineExceeded,
		codes.Canceled:          context.Canceled,
		codes.ResourceExhausted: ErrLimitReached,
		codes.Unauthenticated:   ErrUnauthenticated,
		codes.PermissionDenied:  ErrPermissionDenied,
	} {
		if err := fromStatus(&spb.Status{Code: int32(code)}); !errors.Is(err, want) {
			t.Errorf("%s is not %v", code, want)
		}
	}
	draining := fromStatus(wireError(t, codes.Unavailable, "DRAINING"))
	if errors.Is(draining, ErrUnavailable) {
		t.Error("a service that drains is there")
	}
}
