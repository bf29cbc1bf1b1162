// Package dra implements dynamic resource allocation on the node. The scheduler has chosen the devices of
// ResourceClaims; this package tells their drivers to prepare them before the containers of a Pod start, and to
// unprepare them when the last Pod that uses a claim has ended. The state is stored on disk before a driver is called,
// so that nothing stays prepared for ever.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	drivers "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/keymutex"
)

// Cluster reads claims and deletes ResourceSlices; client.Client implements it.
type Cluster interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name, sub string) (kind.Object, error)
	DeleteAll(ctx context.Context, resource schema.GroupResource, namespace string, only fields.Set, options metav1.DeleteOptions) error
}

// Config is what a Manager needs.
type Config struct {
	// Dir is the folder of the state.
	Dir     string
	Node    string
	Cluster Cluster
	// HealthChanged is called with the Pods whose devices have changed their health; it may be nil.
	HealthChanged func([]types.UID)
	Log           *slog.Logger
}

// Manager prepares the claims of Pods.
type Manager struct {
	Config
	claimLocks     keymutex.Mutex // by claim: Pods may share it, and a slow driver blocks only the Pods that need it
	driversChanged wait.Signal    // drivers have registered or disappeared

	mu      sync.Mutex // guards what follows
	claims  map[string]*Claim
	drivers map[string][]*driver // by name; while one is replaced there are two, and the list of a removed one is empty
	reports map[string]map[deviceKey]report
	timers  map[string]*time.Timer // by driver: when the next health report expires
}

// New makes a manager with the stored state.
func New(c Config) (*Manager, error) {
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of claims: %w", err)
	}
	m := &Manager{Config: c, driversChanged: wait.NewSignal(), claims: map[string]*Claim{}, drivers: map[string][]*driver{},
		reports: map[string]map[deviceKey]report{}, timers: map[string]*time.Timer{}}
	return m, m.load()
}

// Prepare prepares the claims of a Pod. It is idempotent.
func (m *Manager) Prepare(ctx context.Context, p *corev1.Pod) error {
	if len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	if err := m.prepare(ctx, p); err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, p *corev1.Pod) error {
	claims, err := m.claimsFor(ctx, p)
	if err != nil {
		return err
	}
	var keys []string
	for _, c := range claims {
		keys = append(keys, c.key())
	}
	defer m.claimLocks.Lock(keys...)()
	todo, err := m.recordUse(p.UID, claims)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if err := m.prepareClaims(ctx, name, todo[name]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		m.claims[c.key()].Prepared = true
	}
	return m.save()
}

// claimsFor reads the claims of a Pod and checks them, before anything is stored: a Pod that cannot have its claims can
// then be deleted without calling a driver.
func (m *Manager) claimsFor(ctx context.Context, p *corev1.Pod) (out []*Claim, err error) {
	names, err := claimsOf(p)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		o, err := m.Cluster.Get(ctx, gr.ResourceClaims, p.Namespace, n.claim, "")
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.claim, err)
		}
		claim, ok := o.(*resourcev1.ResourceClaim)
		if !ok {
			return nil, fmt.Errorf("fetch ResourceClaim %s: it is a %T", n.claim, o)
		}
		if err := allowed(p, claim, n.generated); err != nil {
			return nil, err
		}
		c, err := claimOf(claim)
		if err != nil {
			return nil, fmt.Errorf("ResourceClaim %s: %w", claim.Name, err)
		}
		for name, d := range c.Drivers {
			if !d.SkipPrepare && m.driver(name) == nil {
				return nil, fmt.Errorf("DRA driver %s is not registered", name)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// recordUse records that a Pod uses claims, and returns what each driver has to prepare.
func (m *Manager) recordUse(uid types.UID, claims []*Claim) (map[string][]*Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	todo := map[string][]*Claim{}
	for _, c := range claims {
		have := m.claims[c.key()]
		switch {
		case have == nil:
			have = c
			m.claims[c.key()] = c
		case have.UID != c.UID:
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", c.Name, have.UID)
		}
		if !slices.Contains(have.Pods, uid) {
			have.Pods = append(have.Pods, uid)
		}
		if have.Prepared {
			continue
		}
		for name, d := range have.Drivers {
			if !d.SkipPrepare {
				todo[name] = append(todo[name], have)
			}
		}
	}
	return todo, m.save()
}

// prepareClaims calls a driver to prepare claims.
func (m *Manager) prepareClaims(ctx context.Context, name string, claims []*Claim) error {
	d := m.driver(name)
	if d == nil {
		return fmt.Errorf("DRA driver %s is not registered", name)
	}
	r, err := d.prepare(ctx, requests(claims))
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	for uid, answer := range r {
		at := slices.IndexFunc(claims, func(c *Claim) bool { return string(c.UID) == uid })
		switch {
		case at < 0:
			return fmt.Errorf("NodePrepareResources returned result for unknown claim UID %s", uid)
		case answer.GetError() != "":
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", claims[at].Name, answer.Error)
		}
		var devices []Device
		for _, x := range answer.GetDevices() {
			devices = append(devices, Device{Pool: x.PoolName, Name: x.DeviceName, Share: x.GetShareId(), Requests: x.RequestNames,
				CDI: x.CdiDeviceIds})
		}
		m.mu.Lock()
		claims[at].Drivers[name].Devices = devices
		m.mu.Unlock()
	}
	if left := len(claims) - len(r); left != 0 {
		return fmt.Errorf("NodePrepareResources skipped %d ResourceClaims", left)
	}
	return nil
}

func requests(claims []*Claim) (out []*drivers.Claim) {
	for _, c := range claims {
		out = append(out, &drivers.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
	}
	return out
}

// Unprepare unprepares the claims of a Pod that no other Pod uses. It is idempotent.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	if err := m.unprepare(ctx, uid); err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepare(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	var keys []string
	for key, c := range m.claims {
		if slices.Contains(c.Pods, uid) {
			keys = append(keys, key)
		}
	}
	m.mu.Unlock()
	defer m.claimLocks.Lock(keys...)()
	m.mu.Lock()
	todo := map[string][]*Claim{}
	var last []*Claim
	shared := false
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		c := m.claims[key]
		switch {
		case !slices.Contains(c.Pods, uid):
		case len(c.Pods) > 1:
			c.Pods = slices.DeleteFunc(c.Pods, func(x types.UID) bool { return x == uid })
			shared = true
		default:
			last = append(last, c)
			for name, d := range c.Drivers {
				if !d.SkipUnprepare {
					todo[name] = append(todo[name], c)
				}
			}
		}
	}
	m.mu.Unlock()
	if len(last) == 0 && !shared {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if err := m.unprepareClaims(ctx, name, todo[name]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range last {
		delete(m.claims, c.key())
	}
	return m.save()
}

// unprepareClaims calls a driver to unprepare claims.
func (m *Manager) unprepareClaims(ctx context.Context, name string, claims []*Claim) error {
	d := m.driver(name)
	if d == nil {
		return fmt.Errorf("DRA driver %s is not registered", name)
	}
	r, err := d.unprepare(ctx, requests(claims))
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	for uid, answer := range r {
		at := slices.IndexFunc(claims, func(c *Claim) bool { return string(c.UID) == uid })
		switch {
		case at < 0:
			return fmt.Errorf("NodeUnprepareResources returned result for unknown claim UID %s", uid)
		case answer.GetError() != "":
			return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", claims[at].Name, answer.Error)
		}
	}
	if left := len(claims) - len(r); left != 0 {
		return fmt.Errorf("NodeUnprepareResources skipped %d ResourceClaims", left)
	}
	return nil
}

// UnprepareStale unprepares the claims of Pods that do not live any more. It is called when all sources of Pods are complete, and
// repeated while a driver is away.
func (m *Manager) UnprepareStale(ctx context.Context, lives func(types.UID) bool) error {
	m.mu.Lock()
	var stale []types.UID
	for _, c := range m.claims {
		for _, uid := range c.Pods {
			if !lives(uid) && !slices.Contains(stale, uid) {
				stale = append(stale, uid)
			}
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, uid := range stale {
		errs = append(errs, m.Unprepare(ctx, uid))
	}
	return errors.Join(errs...)
}

// Uses reports whether a Pod may have prepared claims.
func (m *Manager) Uses(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if slices.Contains(c.Pods, uid) {
			return true
		}
	}
	return false
}

// CDI returns the CDI names of the devices that a container has by claims.
func (m *Manager) CDI(p *corev1.Pod, c *corev1.Container) ([]string, error) {
	uses, err := usesOf(p, c)
	if err != nil || len(uses) == 0 {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, u := range uses {
		have := m.claims[p.Namespace+"/"+u.claim]
		if have == nil || !have.Prepared {
			return nil, fmt.Errorf("the ResourceClaim %s is not prepared", u.claim)
		}
		for _, name := range slices.Sorted(maps.Keys(have.Drivers)) {
			for _, d := range have.Drivers[name].Devices {
				if !d.serves(u.request) {
					continue
				}
				for _, id := range d.CDI {
					if !slices.Contains(out, id) {
						out = append(out, id)
					}
				}
			}
		}
	}
	return out, nil
}

// Status returns the health of the devices that a container has by claims, as far as their drivers report it.
func (m *Manager) Status(p *corev1.Pod, c *corev1.Container) (out []corev1.ResourceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range c.Resources.Claims {
		at := slices.IndexFunc(p.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return r.Name == x.Name })
		if at < 0 {
			continue
		}
		n, found, err := nameOf(p, &p.Spec.ResourceClaims[at])
		have := m.claims[p.Namespace+"/"+n.claim]
		if err != nil || !found || have == nil {
			continue
		}
		st := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + x.Name)}
		if x.Request != "" {
			st.Name += corev1.ResourceName("/" + x.Request)
		}
		for _, name := range slices.Sorted(maps.Keys(have.Drivers)) {
			for _, d := range have.Drivers[name].Devices {
				id := corev1.ResourceID(name + "/" + d.Pool + "/" + d.Name)
				if len(d.CDI) > 0 {
					id = corev1.ResourceID(d.CDI[0])
				}
				if d.serves(x.Request) && !slices.ContainsFunc(st.Resources,
					func(h corev1.ResourceHealth) bool { return h.ResourceID == id }) {
					r := m.reported(name, deviceKey{d.Pool, d.Name}, time.Now())
					h := corev1.ResourceHealth{ResourceID: id, Health: r.health}
					if r.message != "" {
						h.Message = &r.message
					}
					st.Resources = append(st.Resources, h)
				}
			}
		}
		if len(st.Resources) > 0 {
			out = append(out, st)
		}
	}
	return out
}

// Resources returns the claims of a container for the pod resources API.
func (m *Manager) Resources(p *corev1.Pod, c *corev1.Container) (out []*podresources.DynamicResource) {
	uses, err := usesOf(p, c)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, u := range uses {
		have := m.claims[p.Namespace+"/"+u.claim]
		if have == nil || seen[u.claim] {
			continue
		}
		seen[u.claim] = true
		r := &podresources.DynamicResource{ClaimName: have.Name, ClaimNamespace: have.Namespace}
		for _, name := range slices.Sorted(maps.Keys(have.Drivers)) {
			for _, d := range have.Drivers[name].Devices {
				x := &podresources.ClaimResource{DriverName: name, PoolName: d.Pool, DeviceName: d.Name}
				if d.Share != "" {
					x.ShareId = &d.Share
				}
				for _, id := range d.CDI {
					x.CdiDevices = append(x.CdiDevices, &podresources.CDIDevice{Name: id})
				}
				r.ClaimResources = append(r.ClaimResources, x)
			}
		}
		out = append(out, r)
	}
	return out
}
