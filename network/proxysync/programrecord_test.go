package proxysync

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/network/nettest"
)

// ingress returns an Ingress at a revision and a generation.
func ingress(name string, rev, generation int64) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("u-" + name),
		ResourceVersion: fmt.Sprint(rev), Generation: generation}}
}

func ingresses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
}

func isServed(*hop.Record) (bool, error) { return true, nil }

func TestChangeIsRecordedWhenTheProxyFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(100)
		p := NewProgramRecorder(records.Update, "here")
		view := nettest.NewView()
		view.Put(ingress("old", 4, 1))
		p.SkipPresent(ingresses(), view)
		p.Note(ingresses(), client.Event{Object: ingress("old", 4, 1), Rev: 4}) // views repeat what they show
		p.Note(ingresses(), client.Event{Object: ingress("new", 5, 1), Rev: 5})
		p.Note(ingresses(), client.Event{Object: ingress("new", 6, 2), Old: ingress("new", 5, 1), Rev: 6})
		p.Note(ingresses(), client.Event{Object: ingress("old", 7, 1), Old: ingress("old", 4, 1), Rev: 7}) // its status
		p.Note(ingresses(), client.Event{Object: ingress("gone", 8, 1), Rev: 8})
		p.Note(ingresses(), client.Event{Object: ingress("gone", 9, 1), Deleted: true, Rev: 9})
		time.Sleep(time.Second)
		begin, changes := time.Now(), p.Take()
		p.Note(ingresses(), client.Event{Object: ingress("later", 10, 1), Rev: 10})
		time.Sleep(time.Millisecond)
		p.Programmed(changes, begin, isServed)
		got := records.Select(func(*hop.Record) bool { return true })
		if len(got) != 1 {
			t.Fatalf("%+v", got)
		}
		r := got[0]
		if r.Verb != hop.Program || r.UID != "u-new" || r.Rev != 6 || r.CauseUID != "u-new" || r.CauseRev != 6 ||
			r.Resource != "ingresses" || r.Group != networkingv1.GroupName || r.Namespace != "d" || r.Name != "new" ||
			r.User != "system:node:here" || r.Open ||
			r.Took[hop.Network] != 1001*time.Millisecond || r.Wait[hop.Network] != time.Second ||
			len(r.Steps) != 1 || r.Steps[0].Name != "routes" || r.Steps[0].After != time.Second || r.Steps[0].Took != time.Millisecond {
			t.Errorf("%+v", r)
		}
		if later := p.Take(); len(later) != 1 || later[0].UID != "u-later" {
			t.Errorf("%+v", later)
		}
	})
}

func TestChangeThatTheProxyCannotFollowStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, calls := hop.NewRecorder(100), 0
		p := NewProgramRecorder(func(r hop.Record) { calls++; records.Update(r) }, "here")
		p.Note(ingresses(), client.Event{Object: ingress("web", 5, 1), Rev: 5})
		taken := func(*hop.Record) (bool, error) { return true, errors.New("port 80 cannot be opened") }
		for range 10 {
			p.Programmed(p.Take(), time.Now(), taken)
			time.Sleep(time.Second)
		}
		if got := records.Of("u-web"); len(got) != 1 || !got[0].Open || got[0].Error != "port 80 cannot be opened" || calls != 1 {
			t.Errorf("%d calls, %+v", calls, got)
		}
		p.Note(ingresses(), client.Event{Object: ingress("web", 6, 2), Old: ingress("web", 5, 1), Rev: 6})
		p.Programmed(p.Take(), time.Now(), isServed)
		if got := records.Of("u-web"); len(got) != 1 || got[0].Open || got[0].Error != "" || got[0].Took[hop.Network] != 10*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestObjectsOfOthersAreNotRecordedAndChangesAreBounded(t *testing.T) {
	records := hop.NewRecorder(100)
	p := NewProgramRecorder(records.Update, "here")
	for i := range int64(2 * maxRecorded) {
		p.Note(ingresses(), client.Event{Object: ingress(fmt.Sprint(i), i+1, 1), Rev: i + 1})
	}
	changes := p.Take()
	if len(changes) != maxRecorded {
		t.Errorf("%d changes are kept", len(changes))
	}
	p.Programmed(changes, time.Now(), func(*hop.Record) (bool, error) { return false, nil })
	if records.Len() != 0 {
		t.Error("an object of another proxy is recorded")
	}
	nobody := NewProgramRecorder(nil, "here")
	nobody.SkipPresent(ingresses(), nettest.NewView())
	nobody.Note(ingresses(), client.Event{Object: ingress("x", 1, 1), Rev: 1})
	nobody.Programmed(nobody.Take(), time.Now(), isServed)
}
