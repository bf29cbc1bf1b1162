package probe

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/node/podtrace"
)

// formatRecords returns the records of the Pod, one a line.
func formatRecords(records *hop.Recorder) string {
	var out []string
	for _, r := range records.Of("u") {
		line := fmt.Sprintf("%s took %v waited %v", r.Verb, r.Took[hop.Node], r.Wait[hop.Node])
		if r.Open {
			line += " open"
		}
		for _, s := range r.Steps {
			line += strings.TrimSpace(fmt.Sprintf("; %s %v %s", s.Name, s.Took, s.Detail))
		}
		if r.Error != "" {
			line += "; error " + r.Error
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

// traceTo starts tracing, and returns the recorder.
func (s *fakeNode) traceTo() *hop.Recorder {
	records := hop.NewRecorder(10)
	s.prober.Trace = podtrace.New("n", records.Update)
	s.pod.ResourceVersion = "7"
	return records
}

func TestTimeUntilFirstSuccessIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{
			StartupProbe:   execProbe("start", func(p *corev1.Probe) { p.PeriodSeconds, p.FailureThreshold = 2, 100 }),
			LivenessProbe:  execProbe("live", nil),
			ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.InitialDelaySeconds, p.PeriodSeconds = 1, 5 }),
		})
		records := s.traceTo()
		s.setResult("start", "bad")
		s.setResult("ready", "broken")
		s.sync()
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, formatRecords(records), "probe took 0s waited 0s open; startup c 0s; error the startup probe has not succeeded")
		time.Sleep(2 * time.Second) // at 3 s
		s.setResult("start", "ok")
		time.Sleep(2 * time.Second) // at 5 s, after the success at 4 s
		s.setResult("ready", "ok")
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, formatRecords(records), `
probe took 4s waited 4s; startup c 0s 2 tries failed
probe took 5s waited 5s; readiness c 0s 1 try failed`)
		s.setResult("ready", "bad") // later failures are no part of the start
		time.Sleep(time.Minute)
		synctest.Wait()
		if records.Len() != 2 || strings.Contains(formatRecords(records), "open") {
			t.Error(formatRecords(records))
		}
	})
}

func TestEndedContainerHasNoOpenRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.InitialDelaySeconds = 100 })})
		records := s.traceTo()
		s.sync()
		time.Sleep(time.Second)
		s.prober.Forget("u")
		synctest.Wait()
		want(t, formatRecords(records), "probe took 1s waited 1s; readiness c 0s; error the container ended before its readiness probe succeeded")
	})
}

func TestProbesOfOlderContainersAreNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{ReadinessProbe: execProbe("ready", nil)})
		records := s.traceTo()
		s.setContainer("c1", time.Now().Add(-time.Hour))
		s.sync()
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, formatRecords(records), "")
	})
}
