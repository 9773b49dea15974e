package kvtransfer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func TestWhatTheServiceDoesNotHaveIsRefusedByName(t *testing.T) {
	client := dial(t)
	if err := client.Require(inTime(t)); err != nil {
		t.Errorf("nothing is required: %v", err)
	}
	info := must[*pb.GetServerInfoResponse](t)(client.GetServerInfo(inTime(t)))
	err := client.Require(inTime(t), "leap", "dive")
	if !errors.Is(err, kvtransfer.ErrFeatureMissing) {
		t.Fatalf("refused by %v", err)
	}
	for _, said := range []string{`does not have "leap", "dive"`, "version " + info.GetVersion(), "this client is version "} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("%q does not say %s", err, said)
		}
	}
}
