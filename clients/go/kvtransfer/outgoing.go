package kvtransfer

import (
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// A batch holds at most 1000 items and 2 MiB.
const (
	maxBatchItems = 1000
	maxBatchBytes = 1 << 20
)

// joinKey is a worker's entry into a room.
type joinKey struct {
	room   int64
	joinID uint64
}

// keys is a set in the order of its additions.
type keys struct {
	order []joinKey // those removed from in are skipped
	in    map[joinKey]struct{}
}

func (k *keys) add(key joinKey) {
	if _, held := k.in[key]; held {
		return
	}
	if k.in == nil {
		k.in = map[joinKey]struct{}{}
	}
	k.in[key] = struct{}{}
	k.order = append(k.order, key)
}

func (k *keys) remove(key joinKey) {
	delete(k.in, key)
}

// pop takes the first; false if there is none.
func (k *keys) pop() (joinKey, bool) {
	for len(k.order) > 0 {
		key := k.order[0]
		k.order = k.order[1:]
		if _, held := k.in[key]; held {
			delete(k.in, key)
			return key, true
		}
	}
	return joinKey{}, false
}

// marks say what to tell of which joins: the newest state is read when a batch is built.
type marks struct {
	joins, progress, cleanups keys
}

func (m *marks) count() int {
	return len(m.joins.in) + len(m.progress.in) + len(m.cleanups.in)
}

// takeAll moves all marks out of other.
func (m *marks) takeAll(other *marks) {
	for _, kind := range []struct{ into, from *keys }{
		{&m.joins, &other.joins}, {&m.progress, &other.progress}, {&m.cleanups, &other.cleanups},
	} {
		for key, ok := kind.from.pop(); ok; key, ok = kind.from.pop() {
			kind.into.add(key)
		}
	}
}

func (m *marks) drop(key joinKey) {
	m.joins.remove(key)
	m.progress.remove(key)
	m.cleanups.remove(key)
}

type sentBatch struct {
	number int64
	sentAt time.Duration
	marks  marks
}

// builders read the newest state of a join; nil where there is nothing to tell any more.
type builders struct {
	join     func(joinKey) *pb.Join
	progress func(joinKey) *pb.Progress
	cleanup  func(joinKey) *pb.CleanupItem
}

// outgoing is what a worker has yet to tell the service, as numbered batches. What a stream took along without its
// having been applied is marked again on the next one.
type outgoing struct {
	build  builders
	marks  marks
	sent   []*sentBatch
	number int64

	draining     *bool // what the engine said last; nil if nothing
	tellDraining bool
}

func (o *outgoing) pending() bool {
	return o.marks.count() > 0 || o.tellDraining
}

// drain: whether routers should send this worker no new rooms. Told now, and first on each new stream.
func (o *outgoing) drain(draining bool) {
	o.draining, o.tellDraining = &draining, true
}

func (o *outgoing) join(key joinKey) {
	o.marks.joins.add(key)
}

func (o *outgoing) progress(key joinKey) {
	o.marks.progress.add(key)
}

func (o *outgoing) cleanup(key joinKey) {
	o.marks.progress.remove(key) // a cleanup carries the last progress
	o.marks.cleanups.add(key)
}

// drop: nothing more is to be told of a join.
func (o *outgoing) drop(key joinKey) {
	o.marks.drop(key)
	for _, batch := range o.sent {
		batch.marks.drop(key)
	}
}

// newStream begins a stream: what was not applied is to be sent again, first.
func (o *outgoing) newStream() {
	var again marks
	for _, batch := range o.sent {
		again.takeAll(&batch.marks)
	}
	again.takeAll(&o.marks)
	o.marks, o.sent, o.number = again, nil, 0
	o.tellDraining = o.draining != nil
}

// take builds the next batch, sent at now; an empty one renews the lease. Joins go before progress, and progress before
// cleanups, over as many batches as it takes.
func (o *outgoing) take(now time.Duration) *pb.SessionRequest {
	o.number++
	batch := &pb.SessionRequest{Batch: o.number}
	if o.tellDraining {
		batch.Draining, o.tellDraining = o.draining, false
	}
	taken := &sentBatch{number: o.number, sentAt: now}
	room := batchRoom{items: maxBatchItems, bytes: maxBatchBytes}
	if takeKind(&o.marks.joins, &taken.marks.joins, o.build.join, &batch.Joins, &room) &&
		takeKind(&o.marks.progress, &taken.marks.progress, o.build.progress, &batch.Progress, &room) {
		takeKind(&o.marks.cleanups, &taken.marks.cleanups, o.build.cleanup, &batch.Cleanups, &room)
	}
	o.sent = append(o.sent, taken)
	return batch
}

type batchRoom struct{ items, bytes int }

// takeKind moves items of one kind into a batch. False if some did not fit.
func takeKind[T any, M interface {
	*T
	proto.Message
}](from, taken *keys, build func(joinKey) M, into *[]M, left *batchRoom) bool {
	for left.items > 0 && left.bytes > 0 {
		key, ok := from.pop()
		if !ok {
			return true
		}
		if item := build(key); item != nil {
			taken.add(key)
			*into = append(*into, item)
			left.items--
			left.bytes -= proto.Size(item)
		}
	}
	return len(from.in) == 0
}

// applied: everything up to a batch was applied. Returns when that batch was sent; false if it is no news.
func (o *outgoing) applied(number int64) (sentAt time.Duration, ok bool) {
	for len(o.sent) > 0 && o.sent[0].number <= number {
		sentAt, ok = o.sent[0].sentAt, true
		o.sent = o.sent[1:]
	}
	return sentAt, ok
}
