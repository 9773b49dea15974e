package kvtransfer

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime goes on while the machine sleeps, as leases do.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux that Go runs on has the clock
	}
	return time.Duration(now.Nano())
}
