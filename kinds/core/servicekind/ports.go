package servicekind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

var errPortTaken = errors.New("provided port is already allocated")

// nodePortKey returns the key of the claim on a node port. A port has one owner whatever the protocol.
func nodePortKey(port int) string { return "/registry/proa/nodeports/" + strconv.Itoa(port) }

// portPlan decides which node ports a service claims and releases.
type portPlan struct {
	dryRun bool
	taken  map[int]bool
	random func(n uint64) uint64

	claims   []portClaim
	releases []int
}

type portClaim struct {
	port  int
	taken error // the error if another service has claimed the port; nil: choose another port
}

// takenPorts returns the node ports of all services.
func takenPorts(ctx context.Context, d kind.Server) (map[int]bool, error) {
	services, err := d.List(ctx, servicesResource(), "")
	if services == nil { // claims keep ports unique, also those of Services that cannot be decoded
		return nil, fmt.Errorf("list the services: %w", err)
	}
	taken := map[int]bool{}
	for o := range services {
		s, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, port := range nodePortsOf(s) {
			taken[port] = true
		}
		if needsHealthPort(s) && s.Spec.HealthCheckNodePort != 0 {
			taken[int(s.Spec.HealthCheckNodePort)] = true
		}
	}
	return taken, nil
}

// claimRequested claims a port that the client chose. A dry run accepts ports outside of the range.
func (p *portPlan) claimRequested(port int, refused func(error) error) error {
	if !p.dryRun && (port < firstNodePort || port > lastNodePort) {
		return refused(fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", firstNodePort, lastNodePort))
	}
	if p.has(port) {
		return refused(errPortTaken)
	}
	p.claims = append(p.claims, portClaim{port, refused(errPortTaken)})
	return nil
}

// claimFree claims a free port. A dry run shows one beyond the range, which no service ever has.
func (p *portPlan) claimFree() (int, error) {
	if p.dryRun {
		port := lastNodePort + 1
		if len(p.claims) > 0 {
			port = slices.MaxFunc(p.claims, func(a, b portClaim) int { return a.port - b.port }).port
		}
		p.claims = append(p.claims, portClaim{port: port + 1})
		return port + 1, nil
	}
	port, ok := pickPort(p.has, p.random)
	if !ok {
		return 0, errFull
	}
	p.claims = append(p.claims, portClaim{port: port})
	return port, nil
}

func (p *portPlan) has(port int) bool {
	return p.taken[port] || slices.ContainsFunc(p.claims, func(c portClaim) bool { return c.port == port })
}

func (p *portPlan) commit(tx kind.Txn, s *corev1.Service) {
	if p.dryRun {
		return
	}
	owner := "services/" + s.Namespace + "/" + s.Name
	for _, c := range p.claims {
		tx.Claim(nodePortKey(c.port), owner, toStatusError(s, c.taken))
	}
	slices.Sort(p.releases)
	for _, port := range slices.Compact(p.releases) {
		tx.Release(nodePortKey(port))
	}
}

// plan completes the node ports of s. old is nil for a new service.
func (p *portPlan) plan(s, old *corev1.Service) error {
	switch {
	case old == nil && hasNodePorts(s):
		if err := p.planNew(s); err != nil {
			return err
		}
	case old != nil && hasNodePorts(s):
		if err := p.planChange(s, old); err != nil {
			return err
		}
	case old != nil && hasNodePorts(old):
		p.releases = append(p.releases, nodePortsOf(old)...)
	}
	needed, needs := old != nil && needsHealthPort(old), needsHealthPort(s)
	switch {
	case needs && !needed:
		return p.planHealth(s)
	case needed && !needs && old.Spec.HealthCheckNodePort != 0:
		p.releases = append(p.releases, int(old.Spec.HealthCheckNodePort))
	}
	return nil
}

// nodePortRefused returns a function that makes an error about the node port of the i-th port.
func nodePortRefused(i, port int) func(error) error {
	return func(err error) error {
		return field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), port, err.Error())
	}
}

// planNew claims a node port for each port of a new service. Equal ports of different protocols share one.
func (p *portPlan) planNew(s *corev1.Service) error {
	shared := map[int32]int{}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort == 0 && !wantsNodePorts(s) {
			continue
		}
		have, ok := shared[port.Port]
		switch {
		case !ok:
			asked := slices.IndexFunc(s.Spec.Ports, func(q corev1.ServicePort) bool { return q.Port == port.Port && q.NodePort != 0 })
			if asked >= 0 {
				n := int(s.Spec.Ports[asked].NodePort)
				if err := p.claimRequested(n, nodePortRefused(i, n)); err != nil {
					return err
				}
				have = n
			} else {
				n, err := p.claimFree()
				if err != nil {
					return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
				}
				have = n
			}
			shared[port.Port] = have
			port.NodePort = int32(have)
		case port.NodePort == 0:
			port.NodePort = int32(have)
		case int(port.NodePort) != have:
			if err := p.claimRequested(int(port.NodePort), nodePortRefused(i, int(port.NodePort))); err != nil {
				return err
			}
		}
	}
	return nil
}

// planChange keeps the node ports of a service, claims new ones and releases those that it no longer has.
func (p *portPlan) planChange(s, old *corev1.Service) error {
	had := nodePortsOf(old)
	type id struct {
		protocol corev1.Protocol
		port     int32
	}
	seen := map[id]bool{}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort == 0 {
			if !wantsNodePorts(s) {
				continue
			}
			n, err := p.claimFree()
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
			}
			port.NodePort = int32(n)
		} else if n := int(port.NodePort); !slices.Contains(had, n) &&
			!slices.ContainsFunc(p.claims, func(c portClaim) bool { return c.port == n && c.taken != nil }) {
			if err := p.claimRequested(n, nodePortRefused(i, n)); err != nil {
				return err
			}
		}
		if seen[id{port.Protocol, port.NodePort}] {
			return fmt.Errorf("duplicate nodePort: %v", id{port.Protocol, port.NodePort})
		}
		seen[id{port.Protocol, port.NodePort}] = true
	}
	now := nodePortsOf(s)
	for _, n := range had {
		if !slices.Contains(now, n) {
			p.releases = append(p.releases, n)
		}
	}
	return nil
}

func (p *portPlan) planHealth(s *corev1.Service) error {
	if n := int(s.Spec.HealthCheckNodePort); n != 0 {
		return p.claimRequested(n, func(err error) error {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", n, err))
		})
	}
	n, err := p.claimFree()
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", n, err))
	}
	s.Spec.HealthCheckNodePort = int32(n)
	return nil
}

// findContradictions finds what cannot be allocated in any cluster: families and addresses that exclude each other, and
// duplicate node ports.
func findContradictions(s, old *corev1.Service) field.ErrorList {
	s = s.DeepCopy()
	if hasAddress(s) && !keepsPreference(s, old) {
		completePolicy(s, old)
		if errs := validateClusterIPs(s, old); len(errs) > 0 {
			return errs
		}
		if errs := validatePolicy(s, old); len(errs) > 0 {
			return errs
		}
	}
	if !hasNodePorts(s) {
		return nil
	}
	p := &portPlan{dryRun: true}
	err := error(nil)
	if old == nil {
		err = p.planNew(s)
	} else {
		err = p.planChange(s, old)
	}
	if bad, ok := errors.AsType[*field.Error](err); ok {
		return field.ErrorList{bad}
	}
	return nil
}
