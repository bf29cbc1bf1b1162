package connectoptions

import (
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
)

// TestChosenOptions checks that a request into which options are written has these options.
func TestChosenOptions(t *testing.T) {
	for _, test := range []struct {
		body *kind.Body
		want runtime.Object
	}{
		{Body("PodExecOptions", Exec),
			&corev1.PodExecOptions{Stdin: true, Stderr: true, TTY: true, Container: "c", Command: []string{"a", "b c"}}},
		{Body("PodExecOptions", Exec), &corev1.PodExecOptions{Stdout: true}},
		{Body("PodAttachOptions", Attach), &corev1.PodAttachOptions{Stdout: true, Container: "c"}},
		{Body("PodPortForwardOptions", PortForward), &corev1.PodPortForwardOptions{Ports: []int32{80, 81}}},
		{Body("PodPortForwardOptions", PortForward), &corev1.PodPortForwardOptions{}},
		{Body("PodProxyOptions", PodProxy), &corev1.PodProxyOptions{Path: "/a/b/"}},
		{Body("NodeProxyOptions", NodeProxy), &corev1.NodeProxyOptions{Path: "/a"}},
		{Body("ServiceProxyOptions", ServiceProxy), &corev1.ServiceProxyOptions{}},
	} {
		c := &kind.Connection{Path: "was",
			Query: url.Values{"container": {"was"}, "command": {"was"}, "ports": {"1"}, "stdin": {"true"}, "stdout": {"true"}}}
		test.want.GetObjectKind().SetGroupVersionKind(test.body.GroupVersionKind)
		test.body.Choose(c, test.want)
		if got := test.body.Options(c); !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
	}
}
