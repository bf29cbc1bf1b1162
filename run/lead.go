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

const schedulerName = "kube-scheduler"

// loops starts what acts on its own. Where several servers may share an etcd, one of them at a time does.
func (s *Server) loops(ctx context.Context, wg *sync.WaitGroup) {
	all := s.controllers()
	wg.Go(func() {
		s.lead(ctx, "kube-controller-manager", func(ctx context.Context) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, ctl := range all {
				wg.Go(func() {
					s.Persist(ctx, ctl.Name, func() error { return s.runLoop(ctx, ctl) })
				})
			}
		})
	})
	if s.Loops != nil || !s.runs(schedulerName) {
		return
	}
	wg.Go(func() {
		s.lead(ctx, schedulerName, func(ctx context.Context) {
			s.Persist(ctx, schedulerName, func() error { return s.scheduler(ctx) })
		})
	})
}

// Persist runs a loop again when it has ended, because the store did not answer in time perhaps: one loop that cannot begin is
// no reason to end the server. It returns when ctx ends.
func (s *Server) Persist(ctx context.Context, name string, loop func() error) {
	Persist(ctx, s.log, name, loop)
}

// Persist does it for a process without a server.
func Persist(ctx context.Context, log *slog.Logger, name string, loop func() error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		err := loop()
		if ctx.Err() != nil {
			return
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

// lead calls work while this process is the one to do it, until ctx ends.
func (s *Server) lead(ctx context.Context, part string, work func(context.Context)) {
	if len(s.EtcdServers) == 0 {
		work(ctx) // the store is this process's own
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l := control.Leadership{Lease: part, Identity: host + "_" + uuid.NewString()}
	c := s.front.Client(&user.DefaultInfo{Name: "system:" + part, Groups: []string{user.AllAuthenticated}})
	s.Persist(ctx, part, func() error { return l.Run(ctx, s.log, c, work) })
}

// controller is the identity of a controller.
func (s *Server) controller(name string) client.Client {
	c := s.front.Client(account(name))
	if s.Wrap != nil {
		c = s.Wrap(name, c)
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
