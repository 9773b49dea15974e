// Command go-router is the demo's HTTP router in Go: it gives each request a room and sends it to a prefill engine and
// then to a decode engine. Usable in place of examples/pd_llm/router.py.
//
//	go-router --service 127.0.0.1:50051 --prefill http://127.0.0.1:8001 --decode http://127.0.0.1:8002
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
)

// shutdownTimeout is what requests under way get to end when the router is told to.
const shutdownTimeout = time.Second

// headerTimeout is what a caller gets to say what it wants.
const headerTimeout = 10 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "go-router:", err)
		os.Exit(1)
	}
}

func run() error {
	service := flag.String("service", "", "kvservice, as `HOST:PORT`")
	prefill := flag.String("prefill", "", "`URL` of prefill engines that registered without an endpoint")
	decode := flag.String("decode", "", "`URL` of decode engines that registered without an endpoint")
	model := flag.String("model", "", "`NAME` of the model to serve; empty: whichever has engines")
	port := flag.Int("port", 0, "on 127.0.0.1; 0: any")
	timeout := flag.Float64("timeout", 120, "`SECONDS` that a generation may take")
	flag.Parse()
	if *service == "" {
		return errors.New("--service is required")
	}
	client, err := kvtransfer.New(*service)
	if err != nil {
		return err
	}
	defer client.Close()
	router := &router{
		engines: &directory{client: client, model: *model, prefill: *prefill, decode: *decode},
		client:  client,
		timeout: time.Duration(*timeout * float64(time.Second)),
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return serve(ctx, listener, router)
}

// serve serves until ctx ends.
func serve(ctx context.Context, listener net.Listener, router *router) error {
	server := &http.Server{Handler: router.routes(), ReadHeaderTimeout: headerTimeout}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	brief, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if server.Shutdown(brief) != nil {
		_ = server.Close() // whoever is still waiting is hung up on, and its room aborted
	}
	router.tasks.Wait()
	return nil
}
