package kvtransfer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// ErrFeatureMissing has no reason of the service's: it does not have what was required, being older than who asks.
var ErrFeatureMissing = errors.New("feature missing")

const modulePath = "github.com/kvtransfer/kvtransfer/clients/go"

// Require makes sure that the service has features which came after the first release, by their names in
// [pb.GetServerInfoResponse.Features].
//
// Errors: [ErrFeatureMissing], which names those that it has not, its version and this package's.
func (c *Client) Require(ctx context.Context, features ...string) error {
	info, err := c.GetServerInfo(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range features {
		if !slices.Contains(info.GetFeatures(), name) {
			missing = append(missing, fmt.Sprintf("%q", name))
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: the service, version %s, does not have %s; this client is version %s",
		ErrFeatureMissing, info.GetVersion(), strings.Join(missing, ", "), version())
}

// version is this package's, as the program that it is in was built.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == modulePath && module.Version != "" {
				return module.Version
			}
		}
	}
	return "unknown"
}
