package proatest_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/nodereport"
	"proa.dev/node/tracereport"
	"proa.dev/proatest"
)

// TestNodeReports checks that the server accepts an agent's records of its own Pods, drops those of Pods of other nodes, and rejects
// reports of other users.
func TestNodeReports(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		pods := map[string]*corev1.Pod{}
		for _, node := range []string{"n1", "n2"} {
			if _, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
				t.Fatal(err)
			}
			o, err := c.Client.Create(t.Context(), gr.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node},
				Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "web"}}}})
			if err != nil {
				t.Fatal(err)
			}
			pods[node] = o.(*corev1.Pod)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		agent := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
		reports := tracereport.New("n1", c.Server.Client(agent), slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go reports.Run(ctx)
		for _, p := range pods {
			r := hop.Record{UID: p.UID, Rev: 5, Verb: hop.Pull, Resource: "pods", Namespace: p.Namespace, Name: p.Name, User: "admin",
				Start: time.Now().Add(-100 * time.Millisecond)}
			r.Took[hop.Node] = 100 * time.Millisecond
			reports.Record(r)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		pulls := func(node string) (out []hop.Record) {
			for _, r := range c.Server.HopsOf(pods[node].UID) {
				if r.Verb == hop.Pull {
					out = append(out, r)
				}
			}
			return out
		}
		if got := pulls("n1"); len(got) != 1 || got[0].User != "system:node:n1" || got[0].Process != "agent of n1" ||
			got[0].Took[hop.Node] != 100*time.Millisecond {
			t.Errorf("%+v", got)
		}
		if got := pulls("n2"); len(got) != 0 {
			t.Errorf("of another node: %+v", got)
		}
		for name, info := range map[string]*user.DefaultInfo{
			"a user":       {Name: "bob", Groups: []string{user.AllAuthenticated}},
			"another node": {Name: "system:node:n2", Groups: []string{user.NodesGroup, user.AllAuthenticated}},
			"an admin":     {Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}},
		} {
			_, err := c.Server.Client(info).Create(t.Context(), nodereport.Resource(), &nodereport.NodeReport{Node: "n1", Sent: time.Now()})
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
