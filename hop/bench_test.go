package hop

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkAddRequests is what records of writes of clients, and of the work that follows from each, cost when the recorder is full.
func BenchmarkAddRequests(b *testing.B) {
	r := NewRecorder(8192)
	uids := make([]types.UID, 20000)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("%036d", i))
	}
	origin, start := &Origin{Agent: "kubectl"}, time.Now()
	record := func(n int) Record {
		rec := Record{UID: uids[n%len(uids)], Rev: int64(n), Verb: "create", Resource: "pods", Namespace: "default", Name: "web",
			User: "alice", Start: start, Code: 201}
		if rec.Origin = origin; n%2 == 1 {
			rec.User, rec.Origin = "system:serviceaccount:kube-system:replicaset-controller", nil
			rec.CauseUID, rec.CauseRev = uids[(n-1)%len(uids)], int64(n-1)
		}
		return rec
	}
	for i := range uids {
		r.Add(record(i))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		r.Add(record(n))
	}
}
