// Package controltest runs scripts against controllers: a whole control plane in memory, with the real front door, in
// virtual time. A script is a text file of commands; a line that begins with "$ " is a command, what follows it is its input
// or the output it must have, and a line that begins with "# " is a comment:
//
//	$ create
//	apiVersion: apps/v1
//	kind: ReplicaSet
//	...
//	$ ready web-*
//	$ wait 10s
//	$ show replicasets
//	NAME  DESIRED  CURRENT  READY  AGE
//	web   3        3        3      10s
//
// The commands are in commands.go. Generated names are shown as their prefix and a number in the order of creation: web-~1.
// Virtual time begins at midnight of 2000-01-01 in UTC. With -update the outputs are rewritten.
//
// Every script runs four times: once as it is, and once under each of three perturbations, which must not change what
// comes out in the end: views that lag behind, events that are missed, and a crash after every write. A script whose point
// is a moment in time begins with "$ exact" and runs only as it is.
package controltest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/internal/textcase"
	"proa.dev/kinds/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// Scripts runs every script that matches a pattern, as in filepath.Glob, over the controllers. Besides them only the loops
// run that every cluster leans on: default service accounts and the root CA.
func Scripts(t *testing.T, pattern string, controllers ...control.Controller) {
	scripts(t, pattern, cast{controllers: controllers})
}

// ScriptsOfServer runs scripts over controllers that the server itself would run, by their names. They know the custom resources of the
// script.
func ScriptsOfServer(t *testing.T, pattern string, names ...string) {
	scripts(t, pattern, cast{names: names})
}

// cast is who plays in a script: controllers of the test, or those of the server with some names.
type cast struct {
	controllers []control.Controller
	names       []string
}

func scripts(t *testing.T, pattern string, c cast) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		steps := parse(string(text))
		t.Run(name, func(t *testing.T) {
			got := play(t, steps, c, nil)
			if textcase.Update() {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
		if textcase.Update() || len(steps) > 0 && steps[0].name() == "exact" {
			continue
		}
		for _, p := range perturbations() {
			t.Run(name+"/"+p.name, func(t *testing.T) { play(t, steps, c, &p) })
		}
	}
}

// stage is a cluster with the controllers under test.
type stage struct {
	*testing.T
	cluster     *proatest.Cluster
	controllers []control.Controller
	perturb     *perturbation

	mu     sync.Mutex // guards what follows
	crash  func()     // ends the running controllers
	faults []fault
	names  map[string]string // of generated names: what they are shown as
	counts map[string]int    // of prefixes: how many names were generated
	uids   map[string]bool
}

// play runs a script and returns it with the outputs it really had.
func play(t *testing.T, steps []step, c cast, p *perturbation) (got string) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, controllers: c.controllers, perturb: p, names: map[string]string{}, counts: map[string]int{}, uids: map[string]bool{}}
		s.cluster = proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), s.take(c.names, accounts, roots))
		if len(s.controllers) < len(c.names) {
			t.Fatalf("the server has only %d controllers of %v", len(s.controllers), c.names)
		}
		for _, ctl := range s.controllers {
			s.permit(ctl)
		}
		s.begun()
		synctest.Wait() // until hop 3 has seen the roles
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.live(ctx) })
		defer func() {
			stop()
			wg.Wait()
			s.cluster.Stop()
		}()
		synctest.Wait()
		if p != nil && len(steps) > 0 && slices.Contains([]string{"show", "yaml"}, steps[0].name()) {
			s.settle() // after other steps that is done anyway
		}
		var out strings.Builder
		for _, st := range steps {
			out.WriteString(s.do(st))
		}
		got = out.String()
	})
	return got
}

// begun waits until the cluster's own controllers, where they are not under test, have made what every Pod needs. They begin some
// milliseconds after the server, so that a Pod would sometimes be made to wait and sometimes not.
func (s *stage) begun() {
	s.await(accounts, gr.ServiceAccounts, "default")
	s.await(roots, gr.ConfigMaps, "kube-root-ca.crt")
}

// await waits for what a controller of the cluster makes in every namespace.
func (s *stage) await(controller string, on schema.GroupResource, name string) {
	if slices.ContainsFunc(s.controllers, func(c control.Controller) bool { return c.Name == controller }) {
		return
	}
	for {
		_, err := s.cluster.Client.Get(s.Context(), on, metav1.NamespaceDefault, name, "")
		if err == nil {
			return
		}
		if !apierrors.IsNotFound(err) {
			s.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// These controllers give every namespace its first ServiceAccount, and the authority to trust.
const (
	accounts = "service-account-controller"
	roots    = "root-ca-cert-publisher"
)

// take keeps some of a cluster's controllers, and of those none that is under test. Controllers with some names become those under test.
func (s *stage) take(names []string, keep ...string) proatest.Option {
	return func(c *run.Config) {
		c.Loops = func(all []control.Controller) []control.Controller {
			if len(names) > 0 {
				s.controllers = slices.DeleteFunc(slices.Clone(all), func(ctl control.Controller) bool { return !slices.Contains(names, ctl.Name) })
			}
			return slices.DeleteFunc(all, func(ctl control.Controller) bool {
				same := func(t control.Controller) bool { return t.Name == ctl.Name }
				return !slices.Contains(keep, ctl.Name) || slices.ContainsFunc(s.controllers, same)
			})
		}
	}
}

// permit gives a controller the role it has declared, and no more.
func (s *stage) permit(ctl control.Controller) {
	ctx, c := s.Context(), s.cluster.Client
	meta := metav1.ObjectMeta{Name: "test:" + ctl.Name}
	if _, err := c.Create(ctx, gr.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: ctl.Role()}); err != nil {
		s.Fatal(err)
	}
	_, err := c.Create(ctx, gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account(ctl)}},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// account is not the name that the well-known roles are bound to: what a controller may do in a script is what it declares.
func account(ctl control.Controller) string { return "test:" + ctl.Name }

// live runs the controllers, and after a crash runs them again, until ctx ends.
func (s *stage) live(ctx context.Context) {
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		s.mu.Lock()
		s.crash = end
		s.mu.Unlock()
		var wg sync.WaitGroup
		for _, ctl := range s.controllers {
			wg.Go(func() {
				if err := control.Run(life, s.logger(), s.client(life, ctl), ctl, nil); err != nil && life.Err() == nil {
					s.Errorf("controller %s: %v", ctl.Name, err)
				}
			})
		}
		<-life.Done()
		end()
		wg.Wait()
		if ctx.Err() == nil {
			time.Sleep(time.Millisecond) // a new process needs a moment
		}
	}
}

func (s *stage) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// client is what a controller sees: its own identity, with faults and perturbations in between.
func (s *stage) client(ctx context.Context, ctl control.Controller) client.Client {
	c := s.cluster.Server.Client(&user.DefaultInfo{Name: account(ctl), Groups: []string{user.AllAuthenticated}})
	c = &faulty{Client: c, stage: s}
	if s.perturb != nil {
		c = s.perturb.wrap(ctx, s, c)
	}
	return c
}
