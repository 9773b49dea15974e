package kvtransfer

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// DefaultTimeout is allowed to a call, its retries included, whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	timeout     time.Duration
	credentials credentials.TransportCredentials
}

func collect(given []Option) options {
	collected := options{timeout: DefaultTimeout, credentials: insecure.NewCredentials()}
	for _, option := range given {
		option(&collected)
	}
	return collected
}

// WithTimeout changes what is allowed to a call, its retries included, whose context has no deadline, and to a
// [Client.Watch] for finding the service again.
func WithTimeout(timeout time.Duration) Option {
	return func(o *options) { o.timeout = timeout }
}

// WithTLS encrypts the connection; without it there is no TLS. A certificate in config is shown to the service
// (mutual TLS); &tls.Config{} trusts what the system trusts.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.credentials = credentials.NewTLS(config) }
}
