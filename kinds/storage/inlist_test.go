package storage

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

// TestListMarksDefaultClass checks that the newest of the default classes is marked in a list.
func TestListMarksDefaultClass(t *testing.T) {
	class := func(name string, age time.Duration, standard string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": standard},
		}}
	}
	all := []kind.Object{class("plain", 0, "false"), class("old", time.Hour, "true"), class("new", time.Minute, "true")}
	d := StorageClasses()
	mark := d.InList(all)
	for i, want := range []string{"plain", "old", "new (default)"} {
		row := d.Row(all[i])
		mark(all[i], row)
		if row[0] != want {
			t.Errorf("got %v, want %s", row[0], want)
		}
	}
}
