package run

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/schedule"
	"proa.dev/server/devices"
)

const (
	// managerName is the Lease for controllers, as upstream's controller manager calls it.
	managerName   = "kube-controller-manager"
	schedulerName = "kube-scheduler"
	// ownLoops is the Lease of servers that run no controller of upstream's manager: they do not keep that one from leading.
	ownLoops = "proa-controllers"
)

// loops starts what acts on its own. Where several servers may share an etcd, one of them at a time does.
func (s *Server) loops(ctx context.Context, wg *sync.WaitGroup) {
	for _, e := range s.elections() {
		s.lead(ctx, wg, e)
	}
}

// elections are what this server runs that only one server at a time may run.
func (s *Server) elections() (out []election) {
	all := s.controllers()
	if lease := leaseOf(all); lease != "" {
		out = append(out, election{lease: lease, user: user.KubeControllerManager, work: func(ctx context.Context) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, ctl := range all {
				wg.Go(func() {
					s.Persist(ctx, ctl.Name, func() error { return s.runLoop(ctx, ctl) })
				})
			}
		}})
	}
	if s.Loops == nil && s.runs(schedulerName) {
		out = append(out, election{lease: schedulerName, user: user.KubeScheduler, work: func(ctx context.Context) {
			s.Persist(ctx, schedulerName, func() error { return s.scheduler(ctx) })
		}})
	}
	return out
}

// leaseOf is the Lease that whoever runs these controllers must hold; empty when there is nothing to run.
func leaseOf(all []control.Controller) string {
	switch {
	case len(all) == 0:
		return ""
	case slices.ContainsFunc(all, func(c control.Controller) bool { return !slices.Contains(notOfManager(), c.Name) }):
		return managerName
	}
	return ownLoops
}

// notOfManager are the controllers that upstream's controller manager does not have: it leaves them to its API server or to the
// manager of a cloud, or has nothing like them.
func notOfManager() []string {
	return []string{
		"aggregated-availability-controller", "autoregister", "cluster-authentication-trust-controller", "crd-finalizer", "crd-status-controller", "flow-schema-config-producer", "flow-schema-controller",
		"legacy-service-account-token-tracking-controller", "local-availability-controller", "priority-level-config-producer",
		"service-controller", "cluster-settings-publisher", "foreign-endpoints-controller", "local-path-provisioner", "local-path-remover", "simulated-nodes", "simulated-pods",
	}
}

// Persist runs a loop again when it has ended, because the store did not answer in time perhaps: one loop that cannot begin is
// no reason to end the server. It returns when ctx ends.
func (s *Server) Persist(ctx context.Context, name string, loop func() error) {
	Persist(ctx, s.log, name, func() error { return s.parts.Run(ctx, name, loop) })
}

// RunPart runs a part of the process once that somebody else begins again, and lets "proa status" know when it has ended.
func (s *Server) RunPart(ctx context.Context, name string, part func() error) error {
	return s.parts.Run(ctx, name, part)
}

// Persist does it for a process without a server.
func Persist(ctx context.Context, log *slog.Logger, name string, loop func() error) {
	const first, last = 100 * time.Millisecond, 30 * time.Second
	for pause := first; ; pause = min(2*pause, last) {
		began := time.Now()
		err := loop()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > last { // it had begun well
			pause = first
		}
		log.ErrorContext(ctx, "a loop ended; it begins again", "loop", name, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// scheduler places Pods on nodes.
func (s *Server) scheduler(ctx context.Context) error {
	who := &user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}
	config := s.placing
	config.Select = devices.Selector(ctx)
	return schedule.Run(ctx, s.log, s.front.Client(who), config)
}

// openScheduler reads how Pods are to be placed.
func (s *Server) openScheduler(counts prometheus.Registerer) error {
	s.placing = schedule.Config{Recent: schedule.NewRecent(), Metrics: schedule.NewMetrics(), Post: askExtender, Gangs: s.feature(gangs)}
	if err := counts.Register(s.placing.Metrics); err != nil {
		return err
	}
	var err error
	s.placing.File, err = s.readScheduling()
	return err
}

// readScheduling reads the scheduler's configuration, if there is one. Everything in it must be possible here: what the
// scheduler would fail at again and again is refused at once.
func (c *Config) readScheduling() (*configv1.KubeSchedulerConfiguration, error) {
	if c.SchedulerConfig == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.SchedulerConfig)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	file, err := schedule.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.SchedulerConfig, err)
	}
	defs := c.kinds()
	for _, on := range (schedule.Config{File: file}).Reads() {
		if !slices.ContainsFunc(defs, func(d *kind.Def) bool { return d.Resource() == on.On }) {
			return nil, fmt.Errorf("%s: the plugin %s reads %s, which this server does not serve; take the plugin out of the profile", c.SchedulerConfig, on.Plugin, on.On)
		}
	}
	return file, nil
}

// election is work that one server at a time does.
type election struct {
	lease, user string
	work        func(context.Context)
}

// lead does the work while this process is the one to do it, until ctx ends.
func (s *Server) lead(ctx context.Context, wg *sync.WaitGroup, e election) {
	if len(s.EtcdServers) == 0 {
		wg.Go(func() { e.work(ctx) }) // the store is this process's own
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l := &control.Leadership{Lease: e.lease, Identity: host + "_" + uuid.NewString()}
	s.health.addElection(l)
	c := s.front.Client(&user.DefaultInfo{Name: e.user, Groups: []string{user.AllAuthenticated}})
	wg.Go(func() { l.Run(ctx, s.log, c, e.work) })
}

// controller is the identity of a controller.
func (s *Server) controller(name string) client.Client {
	c := s.front.Client(account(name))
	if s.Wrap != nil {
		c = s.Wrap(name, c)
	}
	if slices.Contains(ofAnyResource(), name) {
		return s.withElsewhere(c, account(name))
	}
	return c
}

// account is who a controller is.
func account(name string) user.Info {
	return &user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}
}
