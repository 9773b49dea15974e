package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// asProgram in the environment makes the test's executable the program.
const asProgram = "GO_WATCH_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run starts the program, which ends with ctx, and gives what it says.
func run(ctx context.Context, t *testing.T, args ...string) io.Reader {
	t.Helper()
	program := exec.CommandContext(ctx, os.Args[0], args...)
	program.Env = append(os.Environ(), asProgram+"=1")
	program.Stderr = os.Stderr
	said, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Wait() }) // it was killed
	return said
}

func TestItPrintsEachRank(t *testing.T) {
	service := kvservicetest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	lines := bufio.NewScanner(run(ctx, t, service.Target, "77"))
	until := func(wanted ...string) {
		t.Helper()
		for left := wanted; len(left) > 0; {
			if !lines.Scan() {
				t.Fatalf("it never said %q", left)
			}
			if lines.Text() == left[0] {
				left = left[1:]
			}
		}
	}
	prefill := "rank go-watch/dp0/pp0/tp0 KV_POLL_"
	decode := "rank decode/dp0/pp0/tp0 KV_POLL_"
	until("room 77 KV_POLL_BOOTSTRAPPING " + prefill + "BOOTSTRAPPING")

	client, err := kvtransfer.New(service.Target)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	engine, err := client.GetEngine(ctx, "go-watch", pb.WorkerView_WORKER_VIEW_FULL)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := kvtransfer.StartWorker(client, &pb.RegisterWorkerRequest{
		EngineId: "decode", Role: pb.Role_ROLE_DECODE, Layout: engine.GetWorkers()[0].GetLayout(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := worker.Receiver(kvtransfer.Join{Room: 77, PeerEngine: "go-watch"})
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Offer(kvtransfer.Destination{Tokens: 1, Slots: map[string]int32{"aux": 3}}); err != nil {
		t.Fatal(err)
	}
	until(
		"room 77 KV_POLL_WAITING_FOR_INPUT "+decode+"WAITING_FOR_INPUT",
		"room 77 KV_POLL_WAITING_FOR_INPUT "+prefill+"WAITING_FOR_INPUT",
	)
	receiver.Abort("enough")
	until("room 77 KV_POLL_FAILED " + decode + "FAILED")
	cancel()              // ends the program
	_ = worker.Close(ctx) // waits for nothing
}

func TestItIsShort(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(source), "\n"); lines >= 40 {
		t.Errorf("%d lines", lines)
	}
}
