package node

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/node/pod"
	"proa.dev/node/podtrace"
)

func TestReceivedPodsAreRecordedOnce(t *testing.T) {
	records := hop.NewRecorder(10)
	a := &Agent{podParts: podParts{trace: podtrace.New("n", records.Update)}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u", ResourceVersion: "7"}}
	a.traceReceived(p).Done()
	if got := records.Of("u"); len(got) != 1 || got[0].Verb != hop.Receive || got[0].Rev != 7 || got[0].Open ||
		got[0].User != "system:node:n" {
		t.Errorf("recorded %+v", got)
	}
	p.Status.StartTime = &metav1.Time{}
	a.traceReceived(p).Done()
	if records.Len() != 1 {
		t.Error("a Pod that had started before was recorded")
	}
	(&Agent{}).traceReceived(&corev1.Pod{}).Done() // without a trace it must not panic
}

func TestTheNetworkOfAPodIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		pods := pod.New(pod.Config{Log: slog.New(slog.DiscardHandler)})
		a := &Agent{podParts: podParts{trace: podtrace.New("n", records.Update), pods: pods}}
		a.pods.Update(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u", ResourceVersion: "7"}}, nil)
		done := a.TraceNetwork("u")
		if got := records.Of("u"); len(got) != 1 || !got[0].Open {
			t.Errorf("recorded %+v", got)
		}
		time.Sleep(30 * time.Millisecond)
		done(nil)
		a.TraceNetwork("u")(errors.New("no address is free"))
		a.TraceNetwork("other")(nil)
		got := records.Of("u")
		if len(got) != 2 || got[0].Open || got[0].Took[hop.Node] != 30*time.Millisecond || got[1].Error != "no address is free" ||
			records.Len() != 2 {
			t.Errorf("recorded %+v", got)
		}
	})
}
