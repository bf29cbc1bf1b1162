package storageversion

import (
	"fmt"
	"iter"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// act is what is to be done about a migration.
type act int

const (
	wait act = iota
	start
	prepare
	rewrite
	finish
)

// next says what is to be done about a migration, given all there are.
func next(m *migration, all iter.Seq[*migration]) act {
	switch {
	case is(m, storagemigrationv1.MigrationRunning) && ended(m):
		return finish
	case ended(m):
		return wait
	case is(m, storagemigrationv1.MigrationRunning) && m.Status.ResourceVersion == "":
		return prepare
	case is(m, storagemigrationv1.MigrationRunning):
		return rewrite
	}
	for o := range all {
		if o.Spec.Resource != m.Spec.Resource || o.Name == m.Name {
			continue
		}
		if is(o, storagemigrationv1.MigrationRunning) || !ended(o) && older(o, m) {
			return wait
		}
	}
	return start
}

func is(m *migration, t storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func ended(m *migration) bool {
	return is(m, storagemigrationv1.MigrationSucceeded) || is(m, storagemigrationv1.MigrationFailed)
}

func older(a, b *migration) bool {
	if n := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); n != 0 {
		return n < 0
	}
	return a.Name < b.Name
}

// progress counts objects.
type progress struct{ left, all int }

// running says how far a migration is, and what holds it up.
func running(m *migration, p progress, trouble error, now time.Time) (changed bool) {
	text := "The migration is running"
	switch {
	case p.left > 0:
		text += fmt.Sprintf(", %d/%d objects not yet migrated", p.left, p.all)
	case p.all > 0:
		text += fmt.Sprintf(", %d objects verified migrated", p.all)
	}
	if trouble != nil {
		text += "; transient error: " + trouble.Error()
	}
	return set(m, storagemigrationv1.MigrationRunning, metav1.Condition{Status: metav1.ConditionTrue, Reason: "MigrationRunning", Message: text}, now)
}

func succeed(m *migration, now time.Time) {
	set(m, storagemigrationv1.MigrationSucceeded, metav1.Condition{Status: metav1.ConditionTrue, Reason: "StorageVersionMigrationSucceeded", Message: "Migration completed"}, now)
}

func fail(m *migration, message string, now time.Time) {
	set(m, storagemigrationv1.MigrationFailed, metav1.Condition{Status: metav1.ConditionTrue, Reason: "StorageVersionMigrationFailed", Message: message}, now)
}

func finished(m *migration, now time.Time) {
	set(m, storagemigrationv1.MigrationRunning, metav1.Condition{
		Status: metav1.ConditionFalse, Reason: "MigrationCompleted", Message: "Migration completed", ObservedGeneration: m.Generation,
	}, now)
}

func set(m *migration, t storagemigrationv1.MigrationConditionType, c metav1.Condition, now time.Time) bool {
	c.Type, c.LastTransitionTime = string(t), metav1.NewTime(now)
	return meta.SetStatusCondition(&m.Status.Conditions, c)
}

func unhandled(what string) string { return "migration encountered unhandled error: " + what }
