package runtime

import (
	"fmt"
	"testing"
	"time"

	"proa.dev/node/cri"
)

// BenchmarkPod measures the share of the runtime in the start of a Pod: a sandbox in the host's network with
// one container in it.
func BenchmarkPod(b *testing.B) {
	c := newConfig(b)
	r := startRuntime(b, c)
	defer r.Detach()
	client := connect(b, r)
	ctx := b.Context()
	var sandboxTime, createTime, startTime, endTime time.Duration
	timed := func(sum *time.Duration, do func() error) {
		begin := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		*sum += time.Since(begin)
	}
	n := 0
	for b.Loop() {
		n++
		config := pauseSandbox(c, fmt.Sprint(n))
		var sandbox, container string
		timed(&sandboxTime, func() error {
			answer, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
			sandbox = answer.GetPodSandboxId()
			return err
		})
		timed(&createTime, func() error {
			answer, err := client.CreateContainer(ctx,
				&cri.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: config, Config: pauseContainer()})
			container = answer.GetContainerId()
			return err
		})
		timed(&startTime, func() error {
			_, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container})
			return err
		})
		timed(&endTime, func() error {
			if _, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
				return err
			}
			_, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
			return err
		})
	}
	for name, sum := range map[string]time.Duration{"sandbox": sandboxTime, "create": createTime, "start": startTime, "end": endTime} {
		b.ReportMetric(float64(sum.Microseconds())/1000/float64(n), name+"-ms/op")
	}
}
