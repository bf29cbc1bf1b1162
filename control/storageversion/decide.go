package storageversion

import (
	"fmt"
	"iter"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// action is the next step of a migration.
type action int

const (
	wait action = iota
	start
	prepare
	rewrite
	finish
)

// nextAction returns the next step of a migration, given all migrations.
func nextAction(m *migration, all iter.Seq[*migration]) action {
	switch {
	case isTrue(m, storagemigrationv1.MigrationRunning) && hasEnded(m):
		return finish
	case hasEnded(m):
		return wait
	case isTrue(m, storagemigrationv1.MigrationRunning) && m.Status.ResourceVersion == "":
		return prepare
	case isTrue(m, storagemigrationv1.MigrationRunning):
		return rewrite
	}
	for o := range all {
		if o.Spec.Resource != m.Spec.Resource || o.Name == m.Name {
			continue
		}
		if isTrue(o, storagemigrationv1.MigrationRunning) || !hasEnded(o) && isOlder(o, m) {
			return wait
		}
	}
	return start
}

func isTrue(m *migration, t storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func hasEnded(m *migration) bool {
	return isTrue(m, storagemigrationv1.MigrationSucceeded) || isTrue(m, storagemigrationv1.MigrationFailed)
}

func isOlder(a, b *migration) bool {
	if n := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); n != 0 {
		return n < 0
	}
	return a.Name < b.Name
}

// progress counts the objects that are not migrated yet, and all of them.
type progress struct{ left, all int }

// setRunning sets the condition Running with the progress of a migration and a transient error, if there is one.
func setRunning(m *migration, p progress, transient error, now time.Time) (changed bool) {
	text := "The migration is running"
	switch {
	case p.left > 0:
		text += fmt.Sprintf(", %d/%d objects not yet migrated", p.left, p.all)
	case p.all > 0:
		text += fmt.Sprintf(", %d objects verified migrated", p.all)
	}
	if transient != nil {
		text += "; transient error: " + transient.Error()
	}
	return setCondition(m, storagemigrationv1.MigrationRunning,
		metav1.Condition{Status: metav1.ConditionTrue, Reason: "MigrationRunning", Message: text}, now)
}

func setSucceeded(m *migration, now time.Time) {
	setCondition(m, storagemigrationv1.MigrationSucceeded,
		metav1.Condition{Status: metav1.ConditionTrue, Reason: "StorageVersionMigrationSucceeded", Message: "Migration completed"}, now)
}

func setFailed(m *migration, message string, now time.Time) {
	setCondition(m, storagemigrationv1.MigrationFailed,
		metav1.Condition{Status: metav1.ConditionTrue, Reason: "StorageVersionMigrationFailed", Message: message}, now)
}

func setFinished(m *migration, now time.Time) {
	setCondition(m, storagemigrationv1.MigrationRunning, metav1.Condition{
		Status: metav1.ConditionFalse, Reason: "MigrationCompleted", Message: "Migration completed", ObservedGeneration: m.Generation,
	}, now)
}

func setCondition(m *migration, t storagemigrationv1.MigrationConditionType, c metav1.Condition, now time.Time) bool {
	c.Type, c.LastTransitionTime = string(t), metav1.NewTime(now)
	return meta.SetStatusCondition(&m.Status.Conditions, c)
}

func unhandledMessage(what string) string { return "migration encountered unhandled error: " + what }
