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

func cannotServe(*hop.Record) (bool, error) { return true, errors.New("port 80 cannot be opened") }

// TestNoRecordStaysOpenForever checks that every open record is ended, whatever happens to the object meanwhile.
func TestNoRecordStaysOpenForever(t *testing.T) {
	for name, what := range map[string]func(p *ProgramRecorder){
		"deleted while it waits": func(p *ProgramRecorder) {
			p.Note(ingresses(), client.Event{Object: ingress("web", 6, 1), Deleted: true, Rev: 6})
			p.Programmed(p.Take(), time.Now(), func(*hop.Record) (bool, error) { return false, nil })
		},
		"changed while the proxy is configured": func(p *ProgramRecorder) {
			changes := p.Take()
			p.Note(ingresses(), client.Event{Object: ingress("web", 6, 2), Old: ingress("web", 5, 1), Rev: 6})
			p.Programmed(changes, time.Now(), cannotServe)
			p.Programmed(p.Take(), time.Now(), isServed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			records := hop.NewRecorder(100)
			p := NewProgramRecorder(records.Update, "here")
			p.Note(ingresses(), client.Event{Object: ingress("web", 5, 1), Rev: 5})
			p.Programmed(p.Take(), time.Now(), cannotServe)
			what(p)
			got := records.Of("u-web")
			if len(got) != 1 || got[0].Open || (got[0].Error != "") != (name == "deleted while it waits") {
				t.Errorf("%+v", got)
			}
			if left := p.Take(); len(left) > 0 {
				t.Errorf("%+v is left", left[0])
			}
		})
	}
}

// TestObjectsThatCannotBeServedLeaveRoomForOthers checks that whoever makes many objects that no proxy can follow does not keep those of
// others from being recorded.
func TestObjectsThatCannotBeServedLeaveRoomForOthers(t *testing.T) {
	records := hop.NewRecorder(1 << 16)
	p := NewProgramRecorder(records.Update, "here")
	rev := int64(0)
	note := func(namespace, name string) {
		rev++
		o := ingress(name, rev, 1)
		o.Namespace, o.UID = namespace, types.UID(namespace+name)
		p.Note(ingresses(), client.Event{Object: o, Rev: rev})
	}
	for namespace := range 10 {
		for i := range maxRecorded {
			note(fmt.Sprint("flood-", namespace), fmt.Sprint(i))
		}
		p.Programmed(p.Take(), time.Now(), cannotServe)
	}
	open := map[string]int{}
	all := 0
	for _, r := range records.Select(func(r *hop.Record) bool { return r.Open }) {
		open[r.Namespace]++
		all++
	}
	if open["flood-0"] != maxOpenOfNamespace || all != maxOpen {
		t.Errorf("%d are open: %v", all, open)
	}
	note("shop", "web")
	changes := p.Take()
	if len(changes) != maxOpen+1 {
		t.Errorf("%d changes are pending", len(changes))
	}
	p.Programmed(changes, time.Now(), isServed)
	if got := records.Of("shopweb"); len(got) != 1 || got[0].Open {
		t.Errorf("%+v", got)
	}
	if left := records.Select(func(r *hop.Record) bool { return r.Open }); len(left) > 0 {
		t.Errorf("%d are still open", len(left))
	}
}
