package run

import (
	"context"
	"os"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/run/controllerlease"
	"proa.dev/run/settings"
	"proa.dev/run/webhookclient"
	"proa.dev/schedule"
	"proa.dev/server/deviceselector"
	"proa.dev/server/localclient"
)

// schedulerName is the Lease of the scheduler, under the name that upstream uses.
const schedulerName = "kube-scheduler"

// startControllers starts the controllers and the scheduler. Where servers share an etcd, the one that holds the Lease runs them.
func (s *Server) startControllers(ctx context.Context, wg *sync.WaitGroup) {
	for _, e := range s.elections() {
		s.lead(ctx, wg, e)
	}
}

// elections returns the work of this server that only one server at a time may do.
func (s *Server) elections() (out []election) {
	all := s.controllers()
	if lease := controllerlease.Name(all); lease != "" {
		out = append(out, election{lease: lease, user: user.KubeControllerManager, work: func(ctx context.Context) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, ctl := range all {
				wg.Go(func() {
					s.Persist(ctx, ctl.Name, func() error { return s.runController(ctx, ctl) })
				})
			}
		}})
	}
	if s.FilterControllers == nil && s.RunsController(schedulerName) {
		out = append(out, election{lease: schedulerName, user: user.KubeScheduler, work: func(ctx context.Context) {
			s.Persist(ctx, schedulerName, func() error { return s.scheduler(ctx) })
		}})
	}
	return out
}

// scheduler runs the scheduler until ctx ends.
func (s *Server) scheduler(ctx context.Context) error {
	who := &user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}
	s.schedules.Store(true)
	defer s.schedules.Store(false)
	config := s.scheduling
	config.Select = deviceselector.Selector(ctx)
	return schedule.Run(ctx, s.log, localclient.New(s.pipeline, who), config)
}

// openScheduler reads the configuration of the scheduler.
func (s *Server) openScheduler(counts prometheus.Registerer) error {
	s.scheduling = schedule.Config{Recent: schedule.NewRecent(), Metrics: schedule.NewMetrics(), Record: s.RecordHops,
		Post: webhookclient.AskExtender, Gangs: s.FeatureEnabled(settings.GangScheduling)}
	if err := counts.Register(s.scheduling.Metrics); err != nil {
		return err
	}
	var err error
	s.scheduling.File, err = s.readSchedulerConfig()
	return err
}

// election is work that one server at a time does.
type election struct {
	lease, user string
	work        func(context.Context)
}

// lead does the work while this process is the leader, until ctx ends. With an embedded store it always is.
func (s *Server) lead(ctx context.Context, wg *sync.WaitGroup, e election) {
	if len(s.EtcdServers) == 0 {
		wg.Go(func() { e.work(ctx) }) // no other process uses the store
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l := &control.Leadership{Lease: e.lease, Identity: host + "_" + uuid.NewString()}
	s.health.AddElection(l.Check)
	s.queues.AddElection(l)
	c := localclient.New(s.pipeline, &user.DefaultInfo{Name: e.user, Groups: []string{user.AllAuthenticated}})
	wg.Go(func() { l.Run(ctx, s.log, c, e.work) })
}

// controllerClient returns the client of a controller, with that controller's identity.
func (s *Server) controllerClient(name string) client.Client {
	c := localclient.New(s.pipeline, Account(name))
	if s.WrapClient != nil {
		c = s.WrapClient(name, c)
	}
	if slices.Contains(controllersOfEveryResource(), name) {
		return s.aggregated().Client(c, Account(name))
	}
	return c
}

// Account returns the identity of a service account of kube-system.
func Account(name string) user.Info {
	return &user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}
}
