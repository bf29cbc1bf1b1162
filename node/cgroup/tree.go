// Package cgroup keeps the kernel's groups in which the processes of a node are counted and limited: one for all Pods, below
// it one a quality of service, and below these one a Pod, into which the runtime puts its containers. It speaks to both
// versions of the kernel's interface, by folders or through systemd, and reads what groups use.
//
// What must survive the agent is in the kernel: groups are found again by their names, and how much CPU the tier of burstable
// Pods gets is worked out from the groups in it.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config says where groups are and what they limit.
type Config struct {
	Host   Host
	Driver Driver
	// Root is the group above that of all Pods, "" for none. See RootFor.
	Root   string
	Policy Policy
	// Units makes slices; nil makes folders of them. See FindUnits.
	Units Units
	Log   *slog.Logger
}

// Tree is the groups of one agent.
type Tree struct {
	Config
	all name
	// put writes a file of the kernel; tests on folders without a kernel have their own.
	put func(path, value string) error

	// mu guards the rest: what all Pods may use, and what each of them asks for. Tiers get the sum of their Pods.
	mu    sync.Mutex
	total Limits
	asks  map[types.UID]ask
}

// ask is what a Pod wants to have for sure.
type ask struct {
	class         corev1.PodQOSClass
	milli, memory int64
}

// New returns the groups that belong to a root. It changes nothing; Start does.
func New(c Config) *Tree {
	if c.Driver == "" {
		c.Driver = Cgroupfs
	}
	t := &Tree{Config: c, asks: map[types.UID]ask{}, put: writeFile}
	if c.Root != "" {
		t.all = t.all.with(c.Root)
	}
	t.all = t.all.with(allPods)
	return t
}

// Start makes the groups that hold Pods. All Pods together may use what is allocatable: CPU, memory, processes (see PIDs), huge
// pages. It may be called again when that changes.
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
	t.recall()
	if err := t.make(t.all, t.limitsOfAll()); err != nil {
		return err
	}
	return t.make(t.tier(corev1.PodQOSBurstable), t.burstable())
}

// Ensure makes the group of a Pod with its limits, and returns its name as the runtime takes it.
func (t *Tree) Ensure(p *corev1.Pod) (string, error) {
	n, err := t.of(p)
	if err != nil {
		return "", err
	}
	err = t.make(n, t.Policy.Of(p))
	if errors.Is(err, syscall.EBUSY) {
		// The Pod uses more memory than it may by now. It was started with the old limit; the kernel holds it to that.
		t.Log.Warn("a group uses more than its new limit", "group", n.path(t.Driver), "err", err)
		err = nil
	}
	if err != nil {
		return "", err
	}
	return n.path(t.Driver), t.count(p)
}

// Parent is what Ensure returns, without making anything.
func (t *Tree) Parent(p *corev1.Pod) string {
	n, err := t.of(p)
	if err != nil {
		return ""
	}
	return n.path(t.Driver)
}

// Update gives the group of a Pod the limits of its present spec. The kernel refuses a limit below what is in use.
func (t *Tree) Update(p *corev1.Pod) error {
	n, err := t.of(p)
	if err != nil {
		return err
	}
	if err := t.set(n, t.Policy.Of(p)); err != nil {
		return err
	}
	return t.count(p)
}

// Reserve limits a group that somebody else has made, such as that of the system's services, to a list of resources.
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

// Reservation says what of a list is enforced.
type Reservation int

// All of a list, or only what can be taken away from who uses it.
const (
	All Reservation = iota
	Compressible
)

// Left are the Pods that have groups.
func (t *Tree) Left() ([]types.UID, error) {
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

// Remove kills what still runs in the groups of a Pod, and takes the groups away.
func (t *Tree) Remove(uid types.UID) error {
	part, err := podPart(uid)
	if err != nil {
		return err
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := t.drop(t.tier(class).with(part), t.Driver); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.asks[uid]; !ok {
		return nil
	}
	delete(t.asks, uid)
	return t.share()
}

// Purge removes every group of the tree with all that runs in them, whichever driver made them.
func (t *Tree) Purge() error {
	return errors.Join(t.drop(t.all[:1], Cgroupfs), t.drop(t.all[:1], Systemd))
}

// tier is the group above Pods of a class.
func (t *Tree) tier(class corev1.PodQOSClass) name {
	if class == corev1.PodQOSGuaranteed {
		return t.all
	}
	return t.all.with(strings.ToLower(string(class)))
}

func (t *Tree) of(p *corev1.Pod) (name, error) {
	part, err := podPart(p.UID)
	if err != nil {
		return nil, err
	}
	return t.tier(Class(p)).with(part), nil
}

// podPart is the last part of a group's name. UIDs of static Pods come from files, so they are looked at.
func podPart(uid types.UID) (string, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/_\x00") {
		return "", fmt.Errorf("the UID %q cannot name a group: use letters, digits and '-'", uid)
	}
	return podPrefix + string(uid), nil
}
