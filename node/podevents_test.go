package node

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/node/nodestatus"
)

func TestSpentIsRecordedAtTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		a := &Agent{Config: Config{Config: nodestatus.Config{Name: "n"}, Record: records.Add}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u", ResourceVersion: "7"}}
		begin := time.Now()
		time.Sleep(30 * time.Millisecond)
		a.recordStep(p, "sandbox", begin)
		got := records.Of("u")
		if len(got) != 1 || got[0].Took[hop.Node] != 30*time.Millisecond || got[0].Verb != "sandbox" || got[0].Rev != 7 ||
			got[0].User != "system:node:n" {
			t.Errorf("recorded %+v", got)
		}
		p.ResourceVersion = ""
		a.recordStep(p, "sandbox", begin)
		if records.Len() != 1 {
			t.Error("a Pod that the API does not have was recorded")
		}
		(&Agent{}).recordStep(p, "sandbox", begin) // nobody listens
	})
}
