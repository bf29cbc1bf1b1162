// Package nodebench measures the agent of a node with real containers.
package nodebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
	"proa.dev/test/bench/ground"
	"proa.dev/test/upstream"
)

// maxPods is how many Pods an agent takes: more than are measured at once.
const maxPods = 150

// nodeTrial is a cluster with one node that runs containers.
type nodeTrial struct {
	*benchrun.Trial
	ground *ground.Ground
	floor  *ground.Ground // a second one without an agent, for what the runtime takes by itself
	system *upstream.System
	agent  []int // the process of the agent
}

// agentStart starts a cluster with one node on the given ground, and returns the agent's process. The function that it
// returns removes what the agent has left on the machine after the system was halted.
type agentStart func(context.Context, *ground.Ground) (s *upstream.System, agent int, clean func(context.Context) error, err error)

// startKubelet starts the whole of upstream with a kubelet.
func startKubelet(ctx context.Context, g *ground.Ground) (*upstream.System, int, func(context.Context) error, error) {
	s, err := upstream.Start(ctx, upstream.Options{Whole: true})
	if err != nil {
		return nil, 0, nil, err
	}
	clean := func(context.Context) error { return ground.Unmount(s.Dir()) }
	pid, err := s.StartKubelet(ctx, upstream.Kubelet{Runtime: g.Socket, Groups: g.Groups, MaxPods: maxPods})
	if err != nil {
		s.Stop()
		return nil, 0, nil, err
	}
	return s, pid, clean, nil
}

// startAgent starts proa with a node.
func startAgent(bin string) agentStart {
	return func(ctx context.Context, g *ground.Ground) (*upstream.System, int, func(context.Context) error, error) {
		s, err := upstream.StartProa(ctx, bin, "--node", upstream.Node, "--node-port", "0", "--container-runtime-endpoint", g.Socket,
			"--max-pods", fmt.Sprint(maxPods), "--image-gc-high-threshold", "100", "--eviction-hard",
			"memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
		if err != nil {
			return nil, 0, nil, err
		}
		clean := func(ctx context.Context) error {
			if out, err := exec.CommandContext(ctx, bin, "down", "--purge", "--now", "--data-dir", s.Data).CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return ground.Unmount(s.Dir())
		}
		pid, err := agentPID(ctx, s.Data)
		if err != nil {
			return nil, 0, nil, errors.Join(err, clean(ctx))
		}
		return s, pid, clean, nil
	}
}

// agentPID waits for the agent that a server starts for its first node, and returns its process.
func agentPID(ctx context.Context, data string) (int, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		if text, err := os.ReadFile(filepath.Join(data, "node", "server.pid")); err == nil && len(text) > 0 {
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err := wait.Sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, fmt.Errorf("the server has started no agent: %w", err)
		}
	}
}

// Run measures everything about a node on one cluster.
func Run(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings) (err error) {
	var startCluster agentStart
	switch t.Name {
	case "upstream":
		startCluster = startKubelet
	case "proa":
		startCluster = startAgent(set.Bin)
	default:
		return errors.New("the suite of the node starts its own clusters; it cannot measure a running one")
	}
	bin, err := filepath.Abs(filepath.Dir(set.Bin))
	if err != nil {
		return err
	}
	floor, err := ground.Start(ctx, bin, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.Close(ctx)) }()
	g, err := ground.Start(ctx, bin, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()
	system, pid, clean, err := startCluster(ctx, g)
	if err != nil {
		return err
	}
	defer system.Stop()
	defer func() {
		// Containers end with the ground, before the files below them go.
		err = errors.Join(err, g.Close(ctx), clean(context.WithoutCancel(ctx)))
	}()
	defer system.Halt()
	c, err := benchrun.NewCluster(system.Kubeconfig)
	if err != nil {
		return err
	}
	st := &nodeTrial{Trial: &benchrun.Trial{Cluster: c, Set: set, R: r, Pids: system.Pids()}, ground: g, floor: floor, system: system,
		agent: []int{pid}}
	if err := st.measure(ctx); err != nil {
		if dead := system.Dead(); dead != "" {
			fmt.Fprintln(os.Stderr, dead)
		}
		return err
	}
	return nil
}

// measure runs the measurements one after the other. One that fails is reported, and the others go on.
func (st *nodeTrial) measure(ctx context.Context) error {
	if err := st.waitAgent(ctx); err != nil {
		return err
	}
	for _, s := range AgentSteps() {
		if !st.Set.Wanted(s.Name) {
			continue
		}
		benchrun.Progress("%s: %s", st.R.Name, s.Name)
		start := time.Now()
		if err := s.run(ctx, st); err != nil {
			st.R.AddFailure(s.Name, err)
		}
		benchrun.Progress("%s: %s took %s", st.R.Name, s.Name, time.Since(start).Round(100*time.Millisecond))
		if err := st.empty(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// waitAgent waits until the node takes Pods, or a process of the cluster has ended.
func (st *nodeTrial) waitAgent(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for wait.Sleep(ctx, 100*time.Millisecond) == nil {
			if dead := st.system.Dead(); dead != "" {
				cancel(errors.New(dead))
			}
		}
	}()
	err := st.WaitNodes(ctx, 1, func(n *corev1.Node) string {
		if why := benchrun.NotReadyReason(n); why != "" {
			return why
		}
		return benchrun.OtherTaint(n)
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// empty removes the Pods of a measurement.
func (st *nodeTrial) empty(ctx context.Context) error {
	var spaces corev1.NamespaceList
	if err := st.Core.Get().Resource("namespaces").Param("labelSelector", "proa.dev/bench").Do(ctx).Into(&spaces); err != nil {
		return err
	}
	for _, x := range spaces.Items {
		if x.DeletionTimestamp == nil {
			if err := (benchrun.ResourceClient{Door: st.Core, Resource: "namespaces"}).Remove(ctx, x.Name, nil); err != nil {
				return err
			}
		}
	}
	return benchrun.WaitUntil(ctx, 5*time.Minute, func() (bool, error) {
		var pods corev1.PodList
		if err := st.Core.Get().Resource("pods").Param("resourceVersion", "0").Do(ctx).Into(&pods); err != nil {
			return false, err
		}
		return len(pods.Items) == 0, wait.Sleep(ctx, 50*time.Millisecond)
	})
}

func podCount(n int) string {
	if n == 1 {
		return "1 Pod"
	}
	return fmt.Sprintf("%d Pods", n)
}
