package recordfile

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// BenchmarkSave is what saving a full file costs.
func BenchmarkSave(b *testing.B) {
	records := make([]hop.Record, MaxRecords)
	for i := range records {
		r := fullRecord(i)
		r.UID, r.CauseUID = types.UID(fmt.Sprintf("%036d", i)), types.UID(fmt.Sprintf("%036d", i/2))
		r.Name, r.Start = fmt.Sprint("web-6ccb78f76d-", i), time.Unix(1_794_968_615, int64(i))
		r.User, r.Process, r.Error = "system:serviceaccount:kube-system:replicaset-controller", "server-1", ""
		for h := hop.Authenticate; h <= hop.Commit; h++ {
			r.Took[h] = time.Duration(i+1) * time.Microsecond
		}
		if i%3 > 0 {
			r.Origin, r.Steps = nil, nil
		}
		records[i] = r
	}
	file := filepath.Join(b.TempDir(), "records")
	b.ReportAllocs()
	for b.Loop() {
		if err := Save(file, records); err != nil {
			b.Fatal(err)
		}
	}
}
