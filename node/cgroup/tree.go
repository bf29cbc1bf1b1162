// Package cgroup manages the cgroups by which the processes of a node are accounted and limited: one for all Pods,
// below it one for each QoS class, and below these one for each Pod, into which the runtime puts its containers. It
// supports both cgroup versions, with cgroupfs or systemd as the driver, and reads the usage of cgroups.
//
// The state is in the kernel: cgroups are found again by their names, and the CPU shares of the Burstable class are
// computed from the cgroups in it.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/agentmetrics"
)

// Config is what a Tree needs.
type Config struct {
	Host   Host
	Driver Driver
	// Root is the cgroup above that of all Pods, empty for none. See RootFor.
	Root   string
	Policy Policy
	// Units makes slices of systemd; nil makes folders. See FindUnits.
	Units Units
	// Metrics records the times of operations on the cgroups of Pods; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
}

// Tree is the cgroups of one agent.
type Tree struct {
	Config
	all name
	// writeFile writes a file of the kernel; tests replace it.
	writeFile func(file, value string) error

	// mu guards the rest: the limits of all Pods together, and the requests of each Pod, which add up to those of its
	// QoS class.
	mu       sync.Mutex
	total    Limits
	requests map[types.UID]podRequests
}

// podRequests is the resource requests of a Pod.
type podRequests struct {
	class         corev1.PodQOSClass
	milli, memory int64
}

// New makes a Tree. It changes nothing; Start does.
func New(c Config) *Tree {
	if c.Driver == "" {
		c.Driver = Cgroupfs
	}
	t := &Tree{Config: c, requests: map[types.UID]podRequests{}, writeFile: writeFile}
	if c.Root != "" {
		t.all = t.all.with(c.Root)
	}
	t.all = t.all.with(allPods)
	return t
}

// Start creates the cgroups above those of Pods. All Pods together are limited to what is allocatable: CPU, memory,
// processes (see PIDs), huge pages. It may be called again when that changes.
func (t *Tree) Start(allocatable corev1.ResourceList) error {
	unbound := map[string]int64{}
	for _, size := range t.Host.Pages {
		unbound[size] = unboundHuge
	}
	if t.Root != "" {
		if err := t.make(t.all[:1], Limits{Huge: unbound}); err != nil {
			return err
		}
	}
	if err := t.make(t.tier(corev1.PodQOSBestEffort), Limits{Shares: new(uint64(minShares)), Huge: unbound}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total = ofList(allocatable)
	t.restoreRequests()
	if err := t.make(t.all, t.limitsOfAll()); err != nil {
		return err
	}
	return t.make(t.tier(corev1.PodQOSBurstable), t.burstable())
}

// Ensure creates the cgroup of a Pod with its limits, and returns its name as the runtime expects it.
func (t *Tree) Ensure(p *corev1.Pod) (string, error) {
	defer t.record(agentmetrics.CgroupCreate, time.Now())
	n, err := t.nameOf(p)
	if err != nil {
		return "", err
	}
	err = t.make(n, t.Policy.LimitsOf(p))
	if errors.Is(err, syscall.EBUSY) {
		// The Pod already uses more memory than its new limit, so the kernel keeps the old one.
		t.Log.Warn("a cgroup uses more memory than its new limit", "cgroup", n.path(t.Driver), "err", err)
		err = nil
	}
	if err != nil {
		return "", err
	}
	return n.path(t.Driver), t.updateRequests(p)
}

// record records how long an operation took that has just ended.
func (t *Tree) record(o agentmetrics.CgroupOperation, began time.Time) {
	t.Metrics.CgroupOperation(o, time.Since(began))
}

// Parent returns what Ensure returns, without creating anything.
func (t *Tree) Parent(p *corev1.Pod) string {
	n, err := t.nameOf(p)
	if err != nil {
		return ""
	}
	return n.path(t.Driver)
}

// Update sets the limits of a Pod's cgroup to those of its present spec. The kernel refuses a limit below the usage.
func (t *Tree) Update(p *corev1.Pod) error {
	defer t.record(agentmetrics.CgroupUpdate, time.Now())
	n, err := t.nameOf(p)
	if err != nil {
		return err
	}
	if err := t.set(n, t.Policy.LimitsOf(p)); err != nil {
		return err
	}
	return t.updateRequests(p)
}

// Reserve limits an existing cgroup, such as that of the system's services, to a list of resources.
func (t *Tree) Reserve(group string, list corev1.ResourceList, what Reservation) error {
	n := name(strings.Split(strings.Trim(group, "/"), "/"))
	if t.Driver == Systemd && strings.HasSuffix(group, ".slice") {
		n = strings.Split(strings.ReplaceAll(strings.TrimSuffix(path.Base(group), ".slice"), "_", "-"), "-")
	}
	if _, err := os.Stat(t.Host.dir("cpu", n.path(t.Driver))); err != nil {
		return fmt.Errorf("the group %s for reserved resources must exist before the agent starts: %w", group, err)
	}
	l := ofList(list)
	if what == Compressible {
		l = Limits{Shares: l.Shares}
	} else if l.Memory != nil && t.Host.Version == 2 {
		l.Unified = map[string]string{"memory.min": strconv.FormatInt(*l.Memory, 10)}
	}
	return t.limit(n, l)
}

// Reservation says which resources of a list are enforced.
type Reservation int

// All resources of a list are enforced, or only those that can be taken away from processes without killing them.
const (
	All Reservation = iota
	Compressible
)

// PodUIDs returns the Pods that have cgroups.
func (t *Tree) PodUIDs() ([]types.UID, error) {
	found := map[types.UID]bool{}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		for _, dir := range t.Host.dirs(t.tier(class).path(t.Driver)) {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("list the groups of Pods: %w", err)
			}
			for _, e := range entries {
				if uid, ok := uidOf(t.Driver, e.Name()); ok && e.IsDir() {
					found[uid] = true
				}
			}
		}
	}
	out := make([]types.UID, 0, len(found))
	for uid := range found {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out, nil
}

// Remove kills what still runs in the cgroups of a Pod, and removes them.
func (t *Tree) Remove(uid types.UID) error {
	defer t.record(agentmetrics.CgroupDestroy, time.Now())
	part, err := podPart(uid)
	if err != nil {
		return err
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := t.remove(t.tier(class).with(part), t.Driver); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.requests[uid]; !ok {
		return nil
	}
	delete(t.requests, uid)
	return t.updateTiers()
}

// Purge removes every cgroup of the tree with all processes in them, whichever driver made them.
func (t *Tree) Purge() error {
	return errors.Join(t.remove(t.all[:1], Cgroupfs), t.remove(t.all[:1], Systemd))
}

// tier returns the cgroup of a QoS class.
func (t *Tree) tier(class corev1.PodQOSClass) name {
	if class == corev1.PodQOSGuaranteed {
		return t.all
	}
	return t.all.with(strings.ToLower(string(class)))
}

func (t *Tree) nameOf(p *corev1.Pod) (name, error) {
	part, err := podPart(p.UID)
	if err != nil {
		return nil, err
	}
	return t.tier(QOSClass(p)).with(part), nil
}

// podPart returns the last part of a Pod's cgroup name. UIDs of static Pods come from files, so they are checked.
func podPart(uid types.UID) (string, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/_\x00") {
		return "", fmt.Errorf("the UID %q cannot name a group: use letters, digits and '-'", uid)
	}
	return podPrefix + string(uid), nil
}
