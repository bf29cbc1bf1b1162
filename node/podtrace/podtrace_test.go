package podtrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
)

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u", ResourceVersion: "7"}}
}

func TestWorkIsOneRecordOverAllItsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, calls := hop.NewRecorder(10), 0
		r := New("n", func(x hop.Record) { calls++; records.Update(x) })
		works := Works{}
		try := func() *Work { return works.Begin("volumes", func() *Work { return r.Begin(newPod(), hop.Volumes) }) }
		for range 100 {
			k := try()
			k.Enter("mount", "")
			time.Sleep(time.Second)
			k.Failed(errors.New("no such ConfigMap\x1b[2J"))
			time.Sleep(9 * time.Second)
		}
		if got := records.Of("u"); len(got) != 1 || !got[0].Open || got[0].Error != "no such ConfigMap [2J" || calls > 10 {
			t.Errorf("%d calls, %+v", calls, got)
		}
		k := try()
		k.Enter("mount", "?")
		time.Sleep(time.Second)
		k.Detail("%d volumes", 3)
		k.Done()
		k.Abort("too late")
		got := records.Of("u")
		if len(got) != 1 || got[0].Open || got[0].Error != "" || got[0].Rev != 7 || got[0].CauseRev != 7 ||
			got[0].User != "system:node:n" || got[0].Took[hop.Node] != 1001*time.Second || got[0].Wait[hop.Node] != 900*time.Second {
			t.Errorf("%+v", got)
		}
		if s := got[0].Steps; len(s) != 1 || s[0].Detail != "100 tries failed, 3 volumes" || s[0].After != 1000*time.Second {
			t.Errorf("%+v", s)
		}
		try().Abort("cancelled")
		if got := records.Of("u"); len(got) != 2 || got[1].Error != "cancelled" || got[1].Open {
			t.Errorf("%+v", got)
		}
	})
}

func TestAStepThatIsUnderWayIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		k := New("n", records.Update).Prepare(newPod(), hop.Pull, time.Now().Add(-time.Second))
		if records.Len() != 0 {
			t.Error("work that is prepared was recorded")
		}
		k.Enter("image of web", "nginx")
		got := records.Of("u")
		if len(got) != 1 || !got[0].Open || len(got[0].Steps) != 1 || got[0].Steps[0].Detail != "nginx" ||
			got[0].Steps[0].After != time.Second {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Second)
		k.Failed(errors.New("x"))
		time.Sleep(time.Second)
		if !k.Retry() || k.Retry() {
			t.Error("there was one failure")
		}
		k.Enter("image of web", "nginx")
		time.Sleep(time.Second)
		k.Detail("5 bytes: nginx")
		k.Done()
		got = records.Of("u")
		if s := got[0].Steps; len(got) != 1 || len(s) != 1 || s[0].Detail != "1 try failed, 5 bytes: nginx" || s[0].Took != time.Second ||
			got[0].Wait[hop.Node] != time.Second || got[0].Took[hop.Node] != 4*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestWorkThatIsGivenUpIsNotOpen(t *testing.T) {
	records := hop.NewRecorder(10)
	r := New("n", records.Update)
	works := Works{}
	works.Begin("a", func() *Work { return r.Begin(newPod(), hop.Pull) }).Failed(errors.New("https://u:secret@h/"))
	works.Begin("b", func() *Work { return r.Begin(newPod(), hop.Container) })
	works.Abort("the Pod has ended")
	var got []string
	for _, x := range records.Of("u") {
		if x.Open {
			t.Errorf("%+v is open", x)
		}
		got = append(got, x.Verb+" "+x.Error)
	}
	if text := strings.Join(got, "; "); text != "pull https://h/; container the Pod has ended" {
		t.Error(text)
	}
}

func TestBackOffIsWaitingAndNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, calls := hop.NewRecorder(10), 0
		r := New("n", func(x hop.Record) { calls++; records.Update(x) })
		works := Works{}
		for range 10 {
			works.Begin("x", func() *Work { return r.Begin(newPod(), hop.Pull) }).Postpone(errors.New("back-off"))
			time.Sleep(time.Minute)
		}
		works["x"].Report()
		got := records.Of("u")
		if len(got) != 1 || calls != 3 || got[0].Error != "back-off" || got[0].Wait[hop.Node] != 10*time.Minute || len(got[0].Steps) != 0 {
			t.Errorf("%d calls, %+v", calls, got)
		}
	})
}

func TestStepsAreBounded(t *testing.T) {
	records := hop.NewRecorder(10)
	k := New("n", records.Update).Begin(newPod(), hop.Pull)
	for range 100 {
		k.Enter("x", "")
	}
	k.Failed(errors.New("x"))
	k.Done()
	if got := records.Of("u"); len(got) != 1 || len(got[0].Steps) != 16 {
		t.Errorf("%d steps", len(got[0].Steps))
	}
}

func TestNothingIsRecordedOfStaticPodsOrForNobody(t *testing.T) {
	records := hop.NewRecorder(10)
	p := newPod()
	p.ResourceVersion = ""
	for _, r := range []*Recorder{New("n", records.Update), New("n", nil)} {
		k := Works{}.Begin("x", func() *Work { return r.Begin(p, hop.Pull) })
		k.Enter("x", "")
		k.Detail("x")
		k.Waited(1)
		k.Pause()
		k.Postpone(errors.New("x"))
		k.Failed(errors.New("x"))
		k.Retry()
		k.Report()
		k.Done()
		k.Abort("x")
	}
	if records.Len() != 0 {
		t.Error("something was recorded")
	}
}

func TestPartsAreStepsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		k := New("n", records.Update).Begin(newPod(), hop.Stop)
		web := k.BeginWaiting("stop web")
		time.Sleep(time.Second)
		log := k.BeginWaiting("stop log")
		hook := k.BeginPart("preStop db")
		time.Sleep(time.Second)
		k.Report()
		if got := describeSteps(records.Of("u")[0]); got != "2s/2s: preStop db 1s 1s/0s, stop web 0s 2s/2s, stop log 1s 1s/1s" {
			t.Error(got) // those that wait come last
		}
		web.End("ended", nil)
		time.Sleep(time.Second)
		log.End("killed", nil)
		log.End("once more", nil)
		time.Sleep(time.Second)
		hook.End("", errors.New("no"))
		k.Failed(errors.New("no"))
		time.Sleep(time.Second)
		k.Continue()
		time.Sleep(time.Second)
		k.Done()
		if got := describeSteps(records.Of("u")[0]); got != "6s/4s: stop web 0s 2s/2s ended, stop log 1s 2s/2s 1 try failed, killed" {
			t.Error(got)
		}
	})
}

func TestLongestStepsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		k := New("n", records.Update).Begin(newPod(), hop.Stop)
		slow := k.BeginWaiting("slow")
		for range 40 {
			p := k.BeginPart("quick")
			time.Sleep(time.Millisecond)
			p.End("", nil)
		}
		time.Sleep(time.Second)
		slow.End("", nil)
		k.Done()
		got := records.Of("u")[0]
		if len(got.Steps) != 16 || got.Steps[15].Name != "slow" {
			t.Errorf("%+v", got.Steps)
		}
	})
}

// describeSteps returns the times of a record and of its steps: when each began, how long it took, and how long of that it waited.
func describeSteps(r hop.Record) string {
	var steps []string
	for _, s := range r.Steps {
		steps = append(steps, strings.TrimSpace(fmt.Sprintf("%s %v %v/%v %s", s.Name, s.After, s.Took, s.Wait, s.Detail)))
	}
	return fmt.Sprintf("%v/%v: %s", r.Took[hop.Node], r.Wait[hop.Node], strings.Join(steps, ", "))
}

func TestDo(t *testing.T) {
	records := hop.NewRecorder(10)
	k := New("n", records.Update).Begin(newPod(), hop.Stop)
	why := errors.New("busy")
	ctx, cancel := context.WithCancel(t.Context())
	if err := k.Do(ctx, "volumes", func() error { return why }); !errors.Is(err, why) || records.Of("u")[0].Error != "busy" {
		t.Errorf("%v, %+v", err, records.Of("u"))
	}
	k.Continue()
	cancel()
	_ = k.Do(ctx, "devices", func() error { return errors.New("cancelled") })
	if got := records.Of("u")[0]; got.Error != "busy" || !got.Open {
		t.Errorf("%+v", got)
	}
	k.EndTry(ctx, ctx.Err())
	if got := records.Of("u")[0]; got.Open || len(got.Steps) != 1 || got.Steps[0].Name != "devices" {
		t.Errorf("%+v", got)
	}
}

func TestPartOfNoWork(t *testing.T) {
	var k *Work
	k.BeginPart("x").End("", nil)
	k.Continue()
	k.EndTry(t.Context(), k.Do(t.Context(), "x", func() error { return nil }))
}

func TestProgressIsRecordedWhenItHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, calls := hop.NewRecorder(10), 0
		k := New("n", func(x hop.Record) { calls++; records.Update(x) }).Begin(newPod(), hop.Pull)
		k.Progress("nothing is under way")
		k.Enter("image of web", "nginx")
		for range 3 {
			time.Sleep(time.Second)
			k.Progress("1 MB of 2 MB: nginx")
		}
		if got := records.Of("u")[0]; calls != 3 || !got.Open || got.Steps[0].Detail != "1 MB of 2 MB: nginx" {
			t.Errorf("%d calls, %+v", calls, got)
		}
		k.Done()
		k.Progress("too late")
		if got := records.Of("u")[0]; calls != 4 || got.Steps[0].Detail != "1 MB of 2 MB: nginx" {
			t.Errorf("%d calls, %+v", calls, got)
		}
	})
}
