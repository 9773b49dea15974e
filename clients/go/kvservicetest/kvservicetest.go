// Package kvservicetest runs a real kvservice for tests.
package kvservicetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout is what a kvservice gets to listen.
const startTimeout = 20 * time.Second

// ErrNone: there is no kvservice to run.
var ErrNone = errors.New("no kvservice: run `make setup`, or name its executable in KVSERVICE")

// Service is a running kvservice, on a free port of loopback.
type Service struct {
	// Target is where it listens, as host:port.
	Target string

	command *exec.Cmd
	said    *output
	ended   chan struct{}
}

// Find returns the kvservice to run: the environment's KVSERVICE, or the one of the repository around the working folder.
// It fails with [ErrNone].
func Find() (string, error) {
	if named := os.Getenv("KVSERVICE"); named != "" {
		return named, nil
	}
	folder, err := os.Getwd()
	for err == nil {
		found := filepath.Join(folder, ".venv", "bin", "kvservice")
		if _, missing := os.Stat(found); missing == nil {
			return found, nil
		}
		if folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	return "", ErrNone
}

// Start runs a kvservice with more flags until the test ends. The test is skipped if there is none.
func Start(t testing.TB, flags ...string) *Service {
	t.Helper()
	service, err := Run(flags...)
	if errors.Is(err, ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		service.Kill()
		if t.Failed() {
			t.Logf("kvservice %v said:\n%s", flags, service.said)
		}
	})
	return service
}

// Run runs a kvservice with more flags until Kill. It fails with [ErrNone], and if the service does not come to listen.
func Run(flags ...string) (*Service, error) {
	executable, err := Find()
	if err != nil {
		return nil, err
	}
	s := &Service{
		command: exec.Command(executable, append([]string{"--port", "0"}, flags...)...),
		said:    &output{},
		ended:   make(chan struct{}),
	}
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.command.Stderr = s.said
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	listening := make(chan string, 1)
	go func() {
		defer close(s.ended)
		lines := bufio.NewScanner(io.TeeReader(stdout, s.said))
		for lines.Scan() {
			if target, ok := strings.CutPrefix(lines.Text(), "kvservice listening on "); ok {
				listening <- target
			}
		}
		_ = s.command.Wait() // killed, or it said why
	}()
	select {
	case s.Target = <-listening:
		return s, nil
	case <-s.ended:
	case <-time.After(startTimeout):
		s.Kill()
	}
	return nil, fmt.Errorf("%s did not come to listen:\n%s", executable, s.said)
}

// Kill ends it at once.
func (s *Service) Kill() {
	_ = s.command.Process.Kill() // it may have ended
	<-s.ended
}

// Terminate asks it to drain and end; it goes on until it has.
func (s *Service) Terminate() error {
	return s.command.Process.Signal(syscall.SIGTERM)
}

// Pause stops it where it is, until Resume.
func (s *Service) Pause() error {
	return s.command.Process.Signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (s *Service) Resume() error {
	return s.command.Process.Signal(syscall.SIGCONT)
}

// output collects what a process says.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(said []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.Write(said)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}
