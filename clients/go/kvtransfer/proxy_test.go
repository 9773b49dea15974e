package kvtransfer_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy is a network between a client and a service that can be cut.
type proxy struct {
	target   string
	listener net.Listener
	tasks    sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	down  bool
	taken int
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listener: listener}
	p.tasks.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.tasks.Wait()
	})
	return p
}

func (p *proxy) address() string {
	return p.listener.Addr().String()
}

// cut breaks all connections, and new ones at once, until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// accepted is how many connections were let through.
func (p *proxy) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.carry(near) })
	}
}

func (p *proxy) carry(near net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(near, far) {
		_ = near.Close()
		if far != nil {
			_ = far.Close()
		}
		return
	}
	p.tasks.Go(func() { pipe(near, far) })
	pipe(far, near)
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	p.conns = append(p.conns, conns...)
	p.taken++
	return true
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from) // ends when either is closed
	_ = to.Close()
	_ = from.Close()
}
