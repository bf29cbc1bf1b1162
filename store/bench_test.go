package store

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"proa.dev/kv"
)

func BenchmarkCommit(b *testing.B) {
	e := embed(b, b.TempDir())
	value := make([]byte, 1024)
	rev := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if rev, err = e.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: value, Rev: rev}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommitParallel measures commits of many writers, which share the syncs of the log.
func BenchmarkCommitParallel(b *testing.B) {
	e := embed(b, b.TempDir())
	value := make([]byte, 1024)
	var writer atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		key, rev := "/registry/pods/default/"+strconv.FormatInt(writer.Add(1), 10), int64(0)
		for p.Next() {
			var err error
			if rev, err = e.Commit(b.Context(), kv.Write{Key: key, Value: value, Rev: rev}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCommitExternal measures commits to an etcd that is reached through a socket.
func BenchmarkCommitExternal(b *testing.B) {
	e := connectTo(b, serveEtcd(b).addr)
	value := make([]byte, 1024)
	rev := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if rev, err = e.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: value, Rev: rev}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatch measures the time from a commit until a watcher has received the change.
func BenchmarkWatch(b *testing.B) {
	for _, watchers := range []int{1, 60} {
		b.Run(fmt.Sprint("watches=", watchers), func(b *testing.B) {
			e := embed(b, b.TempDir())
			rev, err := e.Revision(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			seen := make(chan int64, 1024)
			for i := range watchers {
				go func() {
					for batch, err := range e.Watch(b.Context(), fmt.Sprintf("/registry/%d/", i), rev) {
						if err != nil || b.Context().Err() != nil {
							return
						}
						for _, c := range batch.Changes {
							seen <- c.Rev
						}
					}
				}()
			}
			value, at := make([]byte, 1024), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				if at, err = e.Commit(b.Context(), kv.Write{Key: "/registry/0/default/a", Value: value, Rev: at}); err != nil {
					b.Fatal(err)
				}
				<-seen
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	e := embed(b, b.TempDir())
	if _, err := e.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: make([]byte, 1024)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := e.Get(b.Context(), "/registry/pods/default/a"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEmbed(b *testing.B) {
	for b.Loop() {
		e, err := Embed(b.Context(), Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
