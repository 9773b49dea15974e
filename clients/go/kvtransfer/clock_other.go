//go:build !linux

package kvtransfer

import "time"

var started = time.Now()

// boottime stands still while the machine sleeps: workers run on Linux, where it does not.
func boottime() time.Duration {
	return time.Since(started)
}
