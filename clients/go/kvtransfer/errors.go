package kvtransfer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// One error for each [pb.ErrorReason], to be asked for with [errors.Is].
var (
	// ErrWorkerNotFound: the worker never registered, deregistered, or its lease has ended: register again.
	ErrWorkerNotFound = errors.New("worker not found")
	// ErrStaleEpoch: the registration was superseded. From registering: a process born later has the rank.
	ErrStaleEpoch = errors.New("stale epoch")
	// ErrEngineMismatch: role, topology or layout differ from the engine's.
	ErrEngineMismatch = errors.New("engine mismatch")
	// ErrEngineNotFound: no such engine.
	ErrEngineNotFound = errors.New("engine not found")
	// ErrRoomNotFound: the room was never opened, or was forgotten.
	ErrRoomNotFound = errors.New("room not found")
	// ErrRoomReused: the room is, or was a short while ago, in use by another join of the worker or by other engines.
	ErrRoomReused = errors.New("room reused")
	// ErrLayoutMismatch: two engines' layouts or roles do not fit.
	ErrLayoutMismatch = errors.New("layout mismatch")
	// ErrLimitReached: a limit is reached, of the service or of a message.
	ErrLimitReached = errors.New("limit reached")
	// ErrDraining: the service is shutting down.
	ErrDraining = errors.New("draining")
	// ErrInvalidField: an argument is not acceptable; [Error.Field] names it.
	ErrInvalidField = errors.New("invalid field")
	// ErrJoinConflict: the worker joined before, with another destination or peer.
	ErrJoinConflict = errors.New("join conflict")
	// ErrNotAParticipant: the worker is not in the room.
	ErrNotAParticipant = errors.New("not a participant")
	// ErrSessionReplaced: a newer session of the same worker is open.
	ErrSessionReplaced = errors.New("session replaced")
	// ErrUnauthenticated: no valid credentials.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied: the credentials do not reach so far.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrInternal: a fault of the service; its log says more.
	ErrInternal = errors.New("internal")
)

var (
	// ErrUnavailable has no reason of the service's: nobody answers at the target, or the connection broke.
	ErrUnavailable = errors.New("service unavailable")
	// ErrClosed: the [Worker] was closed.
	ErrClosed = errors.New("worker closed")
)

var sentinels = map[pb.ErrorReason]error{
	pb.ErrorReason_ERROR_REASON_WORKER_NOT_FOUND:  ErrWorkerNotFound,
	pb.ErrorReason_ERROR_REASON_STALE_EPOCH:       ErrStaleEpoch,
	pb.ErrorReason_ERROR_REASON_ENGINE_MISMATCH:   ErrEngineMismatch,
	pb.ErrorReason_ERROR_REASON_ENGINE_NOT_FOUND:  ErrEngineNotFound,
	pb.ErrorReason_ERROR_REASON_ROOM_NOT_FOUND:    ErrRoomNotFound,
	pb.ErrorReason_ERROR_REASON_ROOM_REUSED:       ErrRoomReused,
	pb.ErrorReason_ERROR_REASON_LAYOUT_MISMATCH:   ErrLayoutMismatch,
	pb.ErrorReason_ERROR_REASON_LIMIT_REACHED:     ErrLimitReached,
	pb.ErrorReason_ERROR_REASON_DRAINING:          ErrDraining,
	pb.ErrorReason_ERROR_REASON_INVALID_FIELD:     ErrInvalidField,
	pb.ErrorReason_ERROR_REASON_JOIN_CONFLICT:     ErrJoinConflict,
	pb.ErrorReason_ERROR_REASON_NOT_A_PARTICIPANT: ErrNotAParticipant,
	pb.ErrorReason_ERROR_REASON_SESSION_REPLACED:  ErrSessionReplaced,
	pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED:   ErrUnauthenticated,
	pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED: ErrPermissionDenied,
	pb.ErrorReason_ERROR_REASON_INTERNAL:          ErrInternal,
}

// Of gRPC itself, where the service had no say.
var reasonsOfCodes = map[codes.Code]pb.ErrorReason{
	codes.ResourceExhausted: pb.ErrorReason_ERROR_REASON_LIMIT_REACHED, // a message too large
	codes.Unauthenticated:   pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED,
	codes.PermissionDenied:  pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
}

const (
	errorDomain  = "kvtransfer.v1"
	reasonPrefix = "ERROR_REASON_"
)

// Error is a call, or an item of a batch, that failed. Every error of this package that came from the service, or
// from the connection to it, is one; [errors.Is] compares it with the Err variables, and with [context.Canceled] and
// [context.DeadlineExceeded] where the caller's context ended the call.
type Error struct {
	// Reason is what the service named; unspecified if it had no say, or if it named one newer than this package.
	Reason pb.ErrorReason
	// Code is the status of the call.
	Code codes.Code
	// Message is for people, without the reason's name.
	Message string
	// Field is the path of the field that is bad; INVALID_FIELD only.
	Field string
	// Metadata names what the error is about, such as `worker`, `room`, `limit`.
	Metadata map[string]string
}

// Error begins with the name of the reason.
func (e *Error) Error() string {
	if e.Reason == pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s", strings.TrimPrefix(e.Reason.String(), reasonPrefix), e.Message)
}

// Is makes an Error equal to the Err variable of its reason.
func (e *Error) Is(target error) bool {
	switch {
	case e.Reason != pb.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return target == sentinels[e.Reason]
	case e.Code == codes.Unavailable:
		return target == ErrUnavailable
	case e.Code == codes.DeadlineExceeded:
		return target == context.DeadlineExceeded
	case e.Code == codes.Canceled:
		return target == context.Canceled
	}
	return false
}

// GRPCStatus lets package google.golang.org/grpc/status read an Error.
func (e *Error) GRPCStatus() *status.Status {
	return status.New(e.Code, e.Error())
}

// fromError makes an Error of what gRPC returned; io.EOF and the like stay as they are.
func fromError(err error) error {
	if converted, ok := errors.AsType[*Error](err); ok {
		return converted
	}
	if found, ok := status.FromError(err); ok && found != nil {
		return fromStatus(found.Proto())
	}
	return err
}

// fromStatus makes an Error of a call's or an item's status.
func fromStatus(wire *spb.Status) *Error {
	failed := &Error{Code: codes.Code(wire.GetCode()), Message: wire.GetMessage()}
	failed.Reason = reasonsOfCodes[failed.Code]
	for _, packed := range wire.GetDetails() {
		detail, err := packed.UnmarshalNew()
		if err != nil {
			continue // a kind newer than this package
		}
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				failed.Reason = pb.ErrorReason(pb.ErrorReason_value[reasonPrefix+detail.GetReason()])
				failed.Metadata = detail.GetMetadata()
				if failed.Reason != pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
					failed.Message = strings.TrimPrefix(failed.Message, detail.GetReason()+": ")
				}
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				failed.Field = violation.GetField()
			}
		}
	}
	return failed
}

// invalidField refuses an argument without asking the service.
func invalidField(field, format string, args ...any) *Error {
	return &Error{
		Reason:  pb.ErrorReason_ERROR_REASON_INVALID_FIELD,
		Code:    codes.InvalidArgument,
		Message: field + " " + fmt.Sprintf(format, args...),
		Field:   field,
	}
}
