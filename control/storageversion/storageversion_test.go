package storageversion

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/textcase"
)

func day(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }

func TestNext(t *testing.T) {
	for given, want := range textcase.Lines(t, "testdata/next.txt") {
		var all []*migration
		for word := range strings.FieldsSeq(given) {
			name, states, _ := strings.Cut(word, ":")
			m := &migration{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(day(1 + len(all)/2))}}
			m.Spec.Resource.Resource = "pods"
			if name == strings.ToUpper(name) {
				m.Spec.Resource.Resource = "nodes"
			}
			for state := range strings.SplitSeq(states, ":") {
				switch state {
				case "running":
					setRunning(m, progress{}, nil, day(1))
				case "stopped":
					setFinished(m, day(1))
				case "succeeded":
					setSucceeded(m, day(1))
				case "failed":
					setFailed(m, "because", day(1))
				case "revision":
					m.Status.ResourceVersion = "1"
				}
			}
			all = append(all, m)
		}
		var got []string
		for _, m := range all {
			got = append(got, m.Name+" "+[]string{"wait", "start", "prepare", "rewrite", "finish"}[nextAction(m, slices.Values(all))])
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %s, not %s", given, text, want)
		}
	}
}

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		p       progress
		trouble error
		want    string
	}{
		{progress{}, nil, "The migration is running"},
		{progress{0, 3}, nil, "The migration is running, 3 objects verified migrated"},
		{progress{2, 3}, nil, "The migration is running, 2/3 objects not yet migrated"},
		{progress{2, 3}, errors.New("busy"), "The migration is running, 2/3 objects not yet migrated; transient error: busy"},
	} {
		m := &migration{}
		setRunning(m, c.p, c.trouble, day(1))
		if got := meta.FindStatusCondition(m.Status.Conditions, string(storagemigrationv1.MigrationRunning)).Message; got != c.want {
			t.Errorf("%+v: %s", c.p, got)
		}
		if setRunning(m, c.p, c.trouble, day(2)) {
			t.Errorf("%+v: setting the same condition again is a change", c.p)
		}
	}
}

func TestPassing(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, err := range []error{
		errors.New("connection reset"), apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("x")),
		apierrors.NewServiceUnavailable("x"),
		apierrors.NewTimeoutError("x", 1), apierrors.NewServerTimeout(pods, "update", 1),
	} {
		if !isTransient(err) {
			t.Errorf("%v is not transient", err)
		}
	}
	for _, err := range []error{apierrors.NewForbidden(pods, "x", errors.New("no")),
		apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "x", nil), apierrors.NewBadRequest("x")} {
		if isTransient(err) {
			t.Errorf("%v is transient", err)
		}
	}
}

func TestDefinition(t *testing.T) {
	for given, want := range textcase.Lines(t, "testdata/definition.txt") {
		var status, result string
		var generation int64
		if _, err := fmt.Sscan(given, &status, &generation, &result); err != nil {
			t.Fatal(err)
		}
		d := &definition{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v2", Storage: true}}
		d.Status.StoredVersions = []string{"v1", "v2"}
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established}}
		if status != "none" {
			d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionStatus(status), ObservedGeneration: generation,
			})
		}
		got := "unchanged"
		if endMigrating(d, result == "succeeded", day(1)) {
			c := migratingCondition(d)
			got = fmt.Sprintf("%s %d %s: %s %v", c.Status, c.ObservedGeneration, c.Reason, c.Message, d.Status.StoredVersions)
		}
		if got != want {
			t.Errorf("%s: got %s, not %s", given, got, want)
		}
		if len(d.Status.Conditions) > 2 || d.Status.Conditions[0].Type != apiextensionsv1.Established {
			t.Errorf("%s: conditions %v", given, d.Status.Conditions)
		}
	}
	d := &definition{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	if !startMigrating(d, "mine", day(1)) || startMigrating(d, "mine", day(2)) {
		t.Error("the start is not written exactly once")
	}
	if c := migratingCondition(d); c.Status != apiextensionsv1.ConditionTrue || c.Message != "Migration mine is running" ||
		c.Reason != "MigrationRunning" || c.ObservedGeneration != 2 {
		t.Errorf("the start: %+v", c)
	}
	if d.Generation = 3; !startMigrating(d, "mine", day(2)) {
		t.Error("another generation is not written")
	}
}
