// Package controltest runs scripts against controllers: on a whole control plane in memory, with the real request pipeline, in
// virtual time. A script is a text file of commands; a line that begins with "$ " is a command, the lines after it are its
// input or the output it must have, and a line that begins with "# " is a comment:
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
// Every script runs four times: once as it is, and once under each of three perturbations, which must not change the output:
// views that lag behind, events that are missed, and a crash after every write. A script that depends on exact times begins
// with "$ exact" and runs only as it is.
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
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// Scripts runs every script that matches a pattern, as in filepath.Glob, with the given controllers. Besides them only the
// controllers run that every Pod depends on: those of default service accounts and of the root CA.
func Scripts(t *testing.T, pattern string, controllers ...control.Controller) {
	scripts(t, pattern, controllerSet{controllers: controllers})
}

// ScriptsOfServer runs scripts with controllers that the server itself creates, chosen by their names. They know the custom
// resources of the script.
func ScriptsOfServer(t *testing.T, pattern string, names ...string) {
	scripts(t, pattern, controllerSet{names: names})
}

// controllerSet is the set of controllers that a script runs with: those of the test, or those of the server with the given names.
type controllerSet struct {
	controllers []control.Controller
	names       []string
}

func scripts(t *testing.T, pattern string, c controllerSet) {
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
			got := playScript(t, steps, c, nil)
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
			t.Run(name+"/"+p.name, func(t *testing.T) { playScript(t, steps, c, &p) })
		}
	}
}

// player is a cluster with the controllers under test.
type player struct {
	*testing.T
	cluster     *proatest.Cluster
	controllers []control.Controller
	perturb     *perturbation

	mu     sync.Mutex // guards what follows
	crash  func()     // ends the running controllers
	faults []fault
	names  map[string]string // the shown names by generated names
	counts map[string]int    // the number of generated names by prefix
	uids   map[string]bool
}

// playScript runs a script and returns it with its actual outputs.
func playScript(t *testing.T, steps []step, c controllerSet, p *perturbation) (got string) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &player{T: t, controllers: c.controllers, perturb: p, names: map[string]string{}, counts: map[string]int{},
			uids: map[string]bool{}}
		s.cluster = proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir),
			s.selectControllers(c.names, serviceAccountController, rootCAPublisher))
		if len(s.controllers) < len(c.names) {
			t.Fatalf("the server has only %d controllers of %v", len(s.controllers), c.names)
		}
		for _, ctl := range s.controllers {
			s.createRole(ctl)
		}
		s.awaitDefaults()
		synctest.Wait() // until hop 3 has seen the roles
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.runControllers(ctx) })
		defer func() {
			stop()
			wg.Wait()
			s.cluster.Stop()
		}()
		synctest.Wait()
		if p != nil && len(steps) > 0 && slices.Contains([]string{"show", "yaml"}, steps[0].name()) {
			s.settle() // the other commands do so themselves
		}
		var out strings.Builder
		for _, st := range steps {
			out.WriteString(s.do(st))
		}
		got = out.String()
	})
	return got
}

// awaitDefaults waits until the cluster's own controllers, unless they are under test, have created the objects that every Pod needs.
// They start some milliseconds after the server, so that the creation of a Pod would otherwise sometimes have to wait.
func (s *player) awaitDefaults() {
	s.await(serviceAccountController, gr.ServiceAccounts, "default")
	s.await(rootCAPublisher, gr.ConfigMaps, "kube-root-ca.crt")
}

// await waits for the object that a controller of the cluster creates in every namespace.
func (s *player) await(controller string, on schema.GroupResource, name string) {
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

// The controllers that create the default ServiceAccount and the root CA of every namespace.
const (
	serviceAccountController = "service-account-controller"
	rootCAPublisher          = "root-ca-cert-publisher"
)

// selectControllers returns the option that makes the cluster run only the controllers in keep, without those under test. The controllers
// with the given names become those under test.
func (s *player) selectControllers(names []string, keep ...string) proatest.Option {
	return func(c *run.Config) {
		c.FilterControllers = func(all []control.Controller) []control.Controller {
			if len(names) > 0 {
				s.controllers = slices.DeleteFunc(slices.Clone(all),
					func(ctl control.Controller) bool { return !slices.Contains(names, ctl.Name) })
			}
			return slices.DeleteFunc(all, func(ctl control.Controller) bool {
				underTest := func(t control.Controller) bool { return t.Name == ctl.Name }
				return !slices.Contains(keep, ctl.Name) || slices.ContainsFunc(s.controllers, underTest)
			})
		}
	}
}

// createRole creates the role that a controller declares, and binds its user to it.
func (s *player) createRole(ctl control.Controller) {
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

// account returns the user of a controller in scripts. The bootstrap roles are not bound to it, so that a controller has only
// the permissions it declares.
func account(ctl control.Controller) string { return "test:" + ctl.Name }

// runControllers runs the controllers, and starts them again after a crash, until ctx ends.
func (s *player) runControllers(ctx context.Context) {
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
			time.Sleep(time.Millisecond) // the start of a new process
		}
	}
}

func (s *player) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// client returns the client of a controller: with its own user, and with faults and perturbations.
func (s *player) client(ctx context.Context, ctl control.Controller) client.Client {
	c := s.cluster.Server.Client(&user.DefaultInfo{Name: account(ctl), Groups: []string{user.AllAuthenticated}})
	c = &faulty{Client: c, stage: s}
	if s.perturb != nil {
		c = s.perturb.wrap(ctx, s, c)
	}
	return c
}
