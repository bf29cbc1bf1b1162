package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// The labels and annotations that connect the runtime's objects with Pods. Other tools read them too.
const (
	LabelName      = "io.kubernetes.pod.name"
	LabelNamespace = "io.kubernetes.pod.namespace"
	LabelUID       = "io.kubernetes.pod.uid"
	LabelContainer = "io.kubernetes.container.name"

	annotationHash = "io.kubernetes.container.hash"
)

// observer observes what the runtime has of a Pod. It caches what does not change any more: containers that have ended, and
// ready sandboxes that have their addresses.
type observer struct {
	runtime *cri.Client
	// terminationMessage reads the termination message of a container.
	terminationMessage func(*cri.ContainerStatus) string
	exited             map[string]fact.Container
	ready              map[string]fact.Sandbox
}

// observe asks the runtime about a Pod.
func (e *observer) observe(ctx context.Context, uid types.UID) (*fact.Pod, error) {
	mine := map[string]string{LabelUID: string(uid)}
	boxes, err := e.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: mine}})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	runs, err := e.runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: mine}})
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	f := &fact.Pod{UID: uid}
	for _, b := range boxes.Items {
		f.Namespace, f.Name = b.Metadata.Namespace, b.Metadata.Name
		s, err := e.sandbox(ctx, b)
		if cri.NotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		f.Sandboxes = append(f.Sandboxes, s)
	}
	for _, r := range runs.Containers {
		c, err := e.container(ctx, r)
		if cri.NotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		f.Containers = append(f.Containers, c)
	}
	slices.SortFunc(f.Sandboxes, func(a, b fact.Sandbox) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID)) })
	slices.SortFunc(f.Containers, func(a, b fact.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID))
	})
	return f, nil
}

func (e *observer) sandbox(ctx context.Context, b *cri.PodSandbox) (fact.Sandbox, error) {
	if s, found := e.ready[b.Id]; found && b.State == cri.SandboxReady {
		return s, nil
	}
	s := fact.Sandbox{ID: b.Id, Ready: b.State == cri.SandboxReady, Attempt: b.Metadata.Attempt, Created: time.Unix(0, b.CreatedAt),
		Handler: b.RuntimeHandler}
	r, err := e.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: b.Id})
	if err != nil {
		return s, err
	}
	s.Ready = r.Status.State == cri.SandboxReady
	s.Network = r.Status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespacePod
	if n := r.Status.Network; n != nil {
		all := []string{n.Ip}
		for _, more := range n.AdditionalIps {
			all = append(all, more.Ip)
		}
		for _, text := range all {
			if ip, err := netip.ParseAddr(text); err == nil {
				s.IPs = append(s.IPs, ip)
			}
		}
	}
	if s.Ready && (!s.Network || len(s.IPs) > 0) {
		if e.ready == nil {
			e.ready = map[string]fact.Sandbox{}
		}
		e.ready[s.ID] = s
	}
	return s, nil
}

func (e *observer) container(ctx context.Context, r *cri.Container) (fact.Container, error) {
	if c, found := e.exited[r.Id]; found {
		return c, nil
	}
	answer, err := e.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: r.Id})
	if err != nil {
		return fact.Container{}, err
	}
	st := answer.GetStatus()
	if st == nil || st.Metadata == nil {
		return fact.Container{}, errors.New("the runtime says nothing about a container")
	}
	c := fact.Container{
		ID: st.Id, Name: r.Labels[LabelContainer], SandboxID: r.PodSandboxId, Attempt: st.Metadata.Attempt,
		Created: timeOf(st.CreatedAt), Started: timeOf(st.StartedAt), Finished: timeOf(st.FinishedAt),
		ExitCode: st.ExitCode, Reason: st.Reason, Message: st.Message, Image: st.GetImage().GetImage(), ImageID: st.ImageRef,
		Hash: st.Annotations[annotationHash], LogPath: st.LogPath, Resources: runtimeResources(st),
	}
	if asked := st.GetImage().GetUserSpecifiedImage(); asked != "" {
		c.Image = asked
	}
	if c.Name == "" {
		c.Name = st.Metadata.Name
	}
	if s := st.StopSignal; s != 0 {
		c.StopSignal = strings.TrimPrefix(s.String(), "SIGNAL_")
	}
	if u := st.GetUser().GetLinux(); u != nil {
		c.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}}
	}
	for _, m := range st.Mounts {
		c.Mounts = append(c.Mounts, fact.Mount{Host: m.HostPath, Container: m.ContainerPath, ReadOnly: m.Readonly,
			Recursive: m.RecursiveReadOnly, ImageRef: m.GetImage().GetImage()})
	}
	switch st.State {
	case cri.ContainerCreated:
		c.State = fact.Created
	case cri.ContainerRunning:
		c.State = fact.Running
	case cri.ContainerExited:
		c.State = fact.Exited
		c.CompleteEnd()
		if message := e.terminationMessage(st); message != "" {
			c.Message = message
		}
		if e.exited == nil {
			e.exited = map[string]fact.Container{}
		}
		e.exited[c.ID] = c
	}
	return c, nil
}

func timeOf(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// runtimeResources returns the resources that the runtime has given a container.
func runtimeResources(st *cri.ContainerStatus) *corev1.ResourceRequirements {
	l := st.GetResources().GetLinux()
	if l == nil {
		return nil
	}
	out := &corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	if l.CpuQuota > 0 && l.CpuPeriod > 0 {
		out.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity((l.CpuQuota*1000+l.CpuPeriod/2)/l.CpuPeriod, resource.DecimalSI)
	}
	if l.CpuShares > 0 {
		out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity((l.CpuShares*1000+1023)/1024, resource.DecimalSI)
	}
	if l.MemoryLimitInBytes > 0 {
		out.Limits[corev1.ResourceMemory] = *resource.NewQuantity(l.MemoryLimitInBytes, resource.BinarySI)
	}
	return out
}

// attemptAfter returns the attempt number of a container's next run according to the logs of its earlier runs (0.log,
// 1.log, ...), for the case that the runtime has lost its state.
func attemptAfter(logs []string) uint32 {
	next := uint32(0)
	for _, name := range logs {
		number, _, _ := strings.Cut(name, ".")
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			next = max(next, uint32(n)+1)
		}
	}
	return next
}
