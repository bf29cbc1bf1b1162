package apiendpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kv"
)

const (
	// prefix begins the keys of the leases of API servers, where upstream's servers have theirs. The rest of a key is the address
	// of the server. No resource of the API is stored there, so only those who have the credentials of the store can write a lease.
	prefix = "/registry/masterleases/"
	// lifetime is after how many seconds the lease of a server expires that no longer renews it, and renewal how often it does.
	// A server whose member of etcd fails needs up to two seconds to find another one.
	lifetime, renewal = 5, 1500 * time.Millisecond
	// attempts is how often endpoints are written that other servers change at the same time.
	attempts = 10
)

// Store is where servers keep their leases. It counts their time, so that clocks of servers are never compared.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// Keeper keeps the endpoints of the Service default/kubernetes for one server.
type Keeper struct {
	Client client.Client
	// Leases is the store that several servers share; nil for a server that shares its store with nobody, whose endpoints are
	// itself. Nothing is written then while its address stays the same.
	Leases Store
	// Address returns where Pods and nodes reach this server at the moment.
	Address func() netip.AddrPort
	// ClusterIP is the address of the Service.
	ClusterIP netip.Addr
	Log       *slog.Logger

	own kv.Pair // the lease of this server, as it was last written
}

// Sync renews the lease of this server, and makes the endpoints lead to the servers that have one.
func (k *Keeper) Sync(ctx context.Context) error {
	if k.Leases != nil {
		ctx, stop := context.WithTimeout(ctx, lifetime*time.Second)
		defer stop()
		if err := k.renew(ctx); err != nil {
			return fmt.Errorf("renew the lease of this server: %w", err)
		}
	}
	return k.writeEndpoints(ctx)
}

// Run renews the lease and keeps the endpoints right until ctx ends. Then it gives the lease up, so that nobody is sent to this
// server any more.
func (k *Keeper) Run(ctx context.Context) {
	if k.Leases == nil {
		return
	}
	changed := wait.NewSignal()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		k.watch(ctx, changed)
	}()
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	failing := false
	for ctx.Err() == nil {
		var err error
		select {
		case <-tick.C:
			err = k.Sync(ctx)
		case <-changed:
			err = k.writeEndpoints(ctx)
		case <-ctx.Done():
			continue
		}
		if err != nil && !failing && ctx.Err() == nil {
			k.Log.WarnContext(ctx, "the endpoints of default/kubernetes cannot be kept up to date; retrying", "err", err)
		}
		failing = err != nil
	}
	<-watching
	k.leave(context.WithoutCancel(ctx))
}

// watch signals when a server has come or gone, until ctx ends.
func (k *Keeper) watch(ctx context.Context, changed wait.Signal) {
	for ctx.Err() == nil {
		page, err := k.Leases.List(ctx, kv.Range{Prefix: prefix})
		if err == nil {
			changed.Send()
			for batch, err := range k.Leases.Watch(ctx, prefix, page.Rev) {
				if err != nil || slices.ContainsFunc(batch.Changes, func(c kv.Change) bool { return c.Delete || c.Prev.Rev == 0 }) {
					changed.Send()
				}
			}
		}
		_ = wait.Sleep(ctx, renewal) // the loop ends with ctx
	}
}

// renew writes the lease of this server under its present address, whoever has written it before: an earlier process, or another
// server behind the same address.
func (k *Keeper) renew(ctx context.Context) error {
	at := k.Address()
	if key := prefix + at.String(); key != k.own.Key {
		k.release(ctx)
		k.own = kv.Pair{Key: key}
	}
	// Upstream's servers read the address in the value.
	value, err := json.Marshal(&corev1.Endpoints{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"},
		ObjectMeta: metav1.ObjectMeta{Name: at.String()},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: at.Addr().String()}}}},
	})
	if err != nil {
		return err
	}
	for range attempts {
		var rev int64
		rev, err = k.Leases.Commit(ctx, kv.Write{Key: k.own.Key, Value: value, Rev: k.own.Rev, TTL: lifetime, UseReserve: true})
		conflict, isConflict := errors.AsType[*kv.Conflict](err)
		switch {
		case err == nil:
			k.own.Rev = rev
			return nil
		case !isConflict:
			return err
		}
		k.own.Rev = conflict.Now.Rev
	}
	return err
}

// release deletes the lease of this server, unless another server has written it since. If that fails, it expires.
func (k *Keeper) release(ctx context.Context) {
	if k.own.Rev != 0 {
		_, _ = k.Leases.Commit(ctx, kv.Write{Key: k.own.Key, Rev: k.own.Rev})
	}
}

// leave takes this server from the list.
func (k *Keeper) leave(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, renewal)
	defer stop()
	k.release(ctx)
	if err := k.writeEndpoints(ctx); err != nil {
		k.Log.WarnContext(ctx, "this server stops, and default/kubernetes leads to it until another server has noticed", "err", err)
	}
}

// writeEndpoints makes the endpoints lead to the servers that are alive. Several servers do so at the same time; each reads again
// what another has written.
func (k *Keeper) writeEndpoints(ctx context.Context) (err error) {
	primary := discoveryv1.AddressTypeIPv4
	if k.ClusterIP.Is6() {
		primary = discoveryv1.AddressTypeIPv6
	}
	pauses := wait.Backoff{First: 10 * time.Millisecond, Max: 500 * time.Millisecond, Jitter: 0.5}
	for range attempts {
		servers := []netip.AddrPort{k.Address()}
		if k.Leases != nil {
			if servers, err = k.alive(ctx); err != nil {
				return err
			}
		}
		if len(servers) == 0 { // the last server stops: there is nobody to read them
			return nil
		}
		if err = write(ctx, k.Client, servers, primary); !isOvertaken(err) {
			return err
		}
		if wait.Sleep(ctx, pauses.Next()) != nil {
			return err
		}
	}
	return err
}

// alive returns the addresses of the servers that have a lease, sorted. Upstream's servers do not say their port, and have that of
// this server.
func (k *Keeper) alive(ctx context.Context) ([]netip.AddrPort, error) {
	page, err := k.Leases.List(ctx, kv.Range{Prefix: prefix})
	if err != nil {
		return nil, fmt.Errorf("read the leases of the servers: %w", err)
	}
	var out []netip.AddrPort
	for _, p := range page.Pairs {
		text := strings.TrimPrefix(p.Key, prefix)
		if a, err := netip.ParseAddrPort(text); err == nil {
			out = append(out, a)
		} else if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.AddrPortFrom(a, k.Address().Port()))
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}
