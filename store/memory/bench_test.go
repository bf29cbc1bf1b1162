package memory

import (
	"fmt"
	"testing"

	"proa.dev/kv"
)

// fill makes a store with n keys.
func fill(b *testing.B, n int) *Store {
	s := open(b)
	value := make([]byte, 64)
	for i := 0; i < n; i += 100 {
		writes := make([]kv.Write, 100)
		for j := range writes {
			writes[j] = kv.Write{Key: fmt.Sprintf("/registry/pods/default/%07d", i+j), Value: value}
		}
		commit(b, s, writes...)
	}
	if err := s.Compact(b.Context(), s.rev); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkCommit(b *testing.B) {
	for _, keys := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			s := fill(b, keys)
			value := make([]byte, 1024)
			rev := int64(0)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%10_000 == 9_999 { // as a server does, so that the growth of memory is not measured
					if err := s.Compact(b.Context(), rev); err != nil {
						b.Fatal(err)
					}
				}
				var err error
				if rev, err = s.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: value, Rev: rev}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatch measures the time from a commit until a watcher has received the change.
func BenchmarkWatch(b *testing.B) {
	for _, watchers := range []int{1, 60} {
		b.Run(fmt.Sprint("watches=", watchers), func(b *testing.B) {
			s := open(b)
			seen := make(chan int64, 1024)
			for i := range watchers {
				go func() {
					for batch, err := range s.Watch(b.Context(), fmt.Sprintf("/registry/%d/", i), 1) {
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
				at = commit(b, s, kv.Write{Key: "/registry/0/default/a", Value: value, Rev: at})
				<-seen
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	s := fill(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.List(b.Context(), kv.Range{Prefix: "/registry/pods/", Limit: 500}); err != nil {
			b.Fatal(err)
		}
	}
}
